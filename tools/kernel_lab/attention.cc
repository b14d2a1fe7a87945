// Attention over the paged cache: its bits, its results in double precision on the host, its time.
#include <algorithm>
#include <climits>
#include <cmath>

#include "base/float16.h"
#include "base/split_mix.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/row_plan.h"
#include "tools/kernel_lab/attention_tasks.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {
namespace {

ConstMatrixView Rows(const void* data, int rows, int cols) {
  return {data, DType::kF32, rows, cols, cols};
}

// The numbers of a cache that is the first stretch of its pool.
class HostCache {
 public:
  HostCache(const Pool& pool, const PagedKvView& kv, size_t value_bytes,
            const std::vector<int32_t>& pages)
      : pool_(pool), kv_(kv), value_bytes_(value_bytes), pages_(pages) {}

  double Key(int position, int head, int i) const {
    const size_t block = BlockAt(position, head);
    const int place = position % kv_.page_size;
    const size_t word = block + size_t(i / per_word()) * kv_.page_size + place;
    return NumberAt(word * 4, i, block, place);
  }
  double Value(int position, int head, int i) const {
    const size_t block = BlockAt(position, head) + value_bytes_ / 4;
    const int place = position % kv_.page_size;
    const size_t word = block + size_t(place) * element_words() + i / per_word();
    return NumberAt(word * 4, i, block, place);
  }

 private:
  int per_word() const { return 4 / KvElementBytes(kv_.dtype); }
  int element_words() const { return KvElementWords(kv_.dtype, kv_.head_dim); }
  size_t BlockAt(int position, int head) const {
    return static_cast<size_t>(kv_.BlockOf(pages_[position / kv_.page_size], head));
  }
  double NumberAt(size_t word_at, int i, size_t block, int place) const {
    if (kv_.dtype == KvDType::kBF16) return Bf16ToFloat(pool_.Read<uint16_t>(word_at + i % 2 * 2));
    const size_t scale = block + size_t(element_words()) * kv_.page_size + place;
    return double{pool_.Read<float>(scale * 4)} * pool_.Read<int8_t>(word_at + i % 4);
  }

  const Pool& pool_;
  const PagedKvView& kv_;
  size_t value_bytes_;
  const std::vector<int32_t>& pages_;
};

// Compares a head's result for the last row of the first sequence. Tensor cores round queries and
// weights to bf16, by 2^-9 each; a tenth of that would hide a position too many only if its weight
// were small.
void CompareWithHost(const HostCache& cache, const cuda::AttendTask& task, int head,
                     const std::vector<float>& q, int length, const std::vector<float>& got,
                     Comparison* comparison) {
  const int dim = task.kv.head_dim, kv_head = head / (task.num_heads / task.kv.num_kv_heads);
  const bool rounds = task.kv.dtype == KvDType::kBF16;
  std::vector<double> weights(length);
  double largest = -INFINITY, total = 0.0;
  for (int t = 0; t < length; ++t) {
    double score = 0.0;
    for (int i = 0; i < dim; ++i) {
      const float query = q[size_t(head) * dim + i];
      score += (rounds ? Bf16ToFloat(FloatToBf16(query)) : query) * cache.Key(t, kv_head, i);
    }
    weights[t] = score * task.form.scale;
    largest = std::max(largest, weights[t]);
  }
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  for (const int i : {0, dim / 2, dim - 1}) {
    double sum = 0.0, magnitude = 0.0;
    for (int t = 0; t < length; ++t) {
      const double term = weights[t] / total * cache.Value(t, kv_head, i);
      sum += term;
      magnitude += std::abs(term);
    }
    comparison->CompareNear(got[size_t(head) * dim + i], sum, 0x1p-7 * magnitude);
  }
}

}  // namespace

Sequences MakeSequences(Lab& lab, int rows, int batch, int context) {
  Sequences sequences;
  sequences.batch = batch;
  sequences.rows_of_each = rows / batch;
  sequences.length = context + sequences.rows_of_each;
  sequences.max_pages = cuda::CeilDiv(sequences.length, kCachePageSize);
  std::vector<int32_t> pages(size_t(batch) * sequences.max_pages);
  for (int i = 0; i <= batch; ++i) sequences.starts.push_back(i * sequences.rows_of_each);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  uint64_t random = 7;
  for (size_t i = pages.size() - 1; i > 0; --i) {
    random = SplitMix64(random);
    std::swap(pages[i], pages[random % (i + 1)]);
  }
  sequences.rows = {.starts = lab.Upload(sequences.starts), .batch = batch, .num_rows = rows};
  sequences.page_tables = lab.Upload(pages);
  sequences.lengths = lab.Upload(std::vector<int32_t>(batch, sequences.length));
  return sequences;
}

size_t CacheBytes(const Sequences& sequences, const Model& model, KvDType dtype) {
  const int groups = cuda::CeilDiv(sequences.batch * sequences.max_pages, kKvGroupPages);
  return size_t{4} * groups * kKvGroupPages * model.num_kv_heads * kCachePageSize *
         KvRowWords(dtype, model.head_dim);
}

PagedKvView CacheOf(Lab& lab, const Sequences& sequences, const Model& model, KvDType dtype,
                    int index) {
  const Pool& pool = lab.Cache(dtype, model.head_dim);
  const size_t bytes = CacheBytes(sequences, model, dtype);
  const size_t at = lab.Stretch(pool, index, 2 * bytes);
  PagedKvView kv;
  kv.keys = lab.At(pool, at);
  kv.values = lab.At(pool, at + bytes);
  kv.page_tables = sequences.page_tables;
  kv.lengths = sequences.lengths;
  kv.batch = sequences.batch;
  kv.max_pages = sequences.max_pages;
  kv.page_size = kCachePageSize;
  kv.page_stride = int64_t{kCachePageSize} * KvRowWords(dtype, model.head_dim);
  kv.head_stride = kv.page_stride * kKvGroupPages;
  kv.group_stride = kv.head_stride * model.num_kv_heads;
  kv.num_kv_heads = model.num_kv_heads;
  kv.head_dim = model.head_dim;
  kv.dtype = dtype;
  return kv;
}

const int32_t* PlanOf(Lab& lab, const std::vector<int32_t>& starts, const Model& model,
                      KvDType dtype) {
  const AttentionSizes sizes = {model.num_heads, model.num_kv_heads, model.head_dim, dtype};
  return lab.Upload(cuda::RowPlanOf(starts, starts.back(), sizes, lab.num_sms()));
}

// As CudaBackend::Attend.
cuda::AttendTask MakeAttend(Lab& lab, const Sequences& sequences, const Model& model,
                            const PagedKvView& kv, ConstMatrixView q, MatrixView out) {
  cuda::AttendTask task;
  task.q = q;
  task.rows = sequences.rows;
  task.rows.plan = PlanOf(lab, sequences.starts, model, kv.dtype);
  task.kv = kv;
  task.form.scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  task.form.window = INT_MAX;
  task.num_heads = model.num_heads;
  task.out = out;
  task.num_splits = cuda::CeilDiv(kv.max_pages * kv.page_size, cuda::kSplitPositions);
  task.num_sms = lab.num_sms();
  task.decode_rows = cuda::DecodeRowsBesidePrompts(task);
  task.part_splits = cuda::PartSplitsFor(task, cuda::kSplitPartsBytes);
  if (task.part_splits > 0) {
    const int64_t bytes = cuda::SplitPartsBytes(task, cuda::NumPartSlots(task));
    task.parts = static_cast<float*>(lab.Allocate(static_cast<size_t>(bytes)));
  }
  return task;
}

void MeasureAttention(Lab& lab, const Line& line, JsonLine* json) {
  const Model& model = *line.model;
  const int cols = model.num_heads * model.head_dim;
  const Sequences sequences = MakeSequences(lab, line.rows, line.batch, line.context);
  const Pool& floats = lab.Floats();
  const Pool& pool = lab.Cache(line.kv, model.head_dim);
  if (!lab.ok()) return;
  const size_t bytes = CacheBytes(sequences, model, line.kv);
  const MatrixView out = {lab.Allocate(size_t{4} * line.rows * cols), DType::kF32, line.rows, cols,
                          cols};
  cuda::AttendTask task =
      MakeAttend(lab, sequences, model, CacheOf(lab, sequences, model, line.kv, 0),
                 Rows(lab.At(floats, 0), line.rows, cols), out);
  if (!lab.ok()) return;
  lab.Poison(out.data, size_t{4} * line.rows * cols);
  lab.Run(task, "attention");

  // Rows of the first sequence alone, in one block over all splits.
  Comparison comparison;
  const std::vector<int32_t> pages =
      lab.Download<int32_t>(sequences.page_tables, sequences.max_pages);
  std::vector<int> rows = {0, sequences.rows_of_each / 2, sequences.rows_of_each - 1};
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  auto* const alone_out = static_cast<float*>(lab.Allocate(size_t{4} * cols));
  for (const int row : rows) {
    const int length = sequences.length - (sequences.rows_of_each - 1 - row);
    cuda::AttendTask alone = task;
    alone.q = Rows(static_cast<const float*>(task.q.data) + int64_t{row} * cols, 1, cols);
    alone.out = {alone_out, DType::kF32, 1, cols, cols};
    alone.rows = {.batch = 1, .num_rows = 1, .plan = PlanOf(lab, {0, 1}, model, line.kv)};
    alone.kv.lengths = lab.Upload(std::vector<int32_t>{length});
    alone.kv.batch = 1;
    alone.parts = nullptr;
    alone.decode_rows = 0;
    if (!lab.ok()) return;
    lab.Poison(alone_out, size_t{4} * cols);
    lab.Run(alone, "attention of one row");
    const std::vector<uint32_t> want = lab.Download<uint32_t>(alone_out, cols);
    const auto* const row_out = static_cast<const float*>(out.data) + int64_t{row} * cols;
    comparison.Compare(lab.Download<uint32_t>(row_out, cols), want);
    if (row != rows.back()) continue;
    std::vector<float> q(cols);
    for (int i = 0; i < cols; ++i) q[i] = floats.Read<float>(size_t{4} * (int64_t{row} * cols + i));
    const HostCache cache(pool, task.kv, bytes, pages);
    const std::vector<float> got = lab.Download<float>(row_out, cols);
    for (const int head : {0, model.num_heads - 1}) {
      CompareWithHost(cache, task, head, q, length, got, &comparison);
    }
  }
  AddComparison(comparison, json);

  const int copies = NumAttentionCopies(line, static_cast<int64_t>(2 * bytes), lab.quick());
  const double read = 8.0 * line.batch * sequences.length * model.num_kv_heads *
                      KvRowWords(line.kv, model.head_dim);
  const auto enqueue = [&](int i) {
    task.kv = CacheOf(lab, sequences, model, line.kv, i);
    lab.Run(task, "attention");
  };
  const double seconds = TimeParts(lab, copies, read, enqueue, json);
  if (!lab.ok()) return;
  // Two products for each row, head and position that the row sees.
  const double seen = line.context + (sequences.rows_of_each + 1) / 2.0;
  json->Add("tflop_per_s", 4.0 * line.rows * cols * seen / seconds * 1e-12);
}

}  // namespace tandem::kernel_lab
