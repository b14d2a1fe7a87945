// Whole passes: the launches of a model's pass in their order, as a graph. Layers have different
// memory, so that L2 serves no weight twice.
#include <algorithm>
#include <cmath>

#include "base/split_mix.h"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/operations.h"
#include "tools/kernel_lab/attention_tasks.h"
#include "tools/kernel_lab/lab.h"
#include "tools/kernel_lab/product_tasks.h"

namespace tandem::kernel_lab {
namespace {

class Pass {
 public:
  Pass(Lab& lab, const Line& line)
      : lab_(lab),
        line_(line),
        model_(*line.model),
        sequences_(MakeSequences(lab, line.rows, line.batch, line.context)) {
    const int attended = model_.num_heads * model_.head_dim;
    hidden_ = Matrix(model_.dim);
    qkv_ = Matrix(attended + 2 * model_.num_kv_heads * model_.head_dim);
    attended_ = Matrix(attended);
    gated_ = Matrix(model_.hidden);
    logits_ = Matrix(model_.vocab);
    angles_ = Matrix(model_.head_dim);
    const int most = std::max({model_.dim, attended, model_.hidden});
    norm_ = static_cast<const float*>(lab.At(lab.Floats(), 64));
    for (cuda::NextRows& rows : rows_) {
      rows = {.image = lab.Allocate(std::max(cuda::PackedWholeRowsBytes(line.rows, most),
                                             cuda::RowsImageBytes(line.rows, most))),
              .norm = norm_,
              .squares = static_cast<float*>(
                  lab.Allocate(size_t{4} * line.rows * cuda::NumSquares(model_.dim)))};
    }
    std::vector<int32_t> ids(line.rows);
    for (int i = 0; i < line.rows; ++i) ids[i] = static_cast<int32_t>(SplitMix64(i) % model_.vocab);
    ids_ = lab.Upload(ids);
    std::vector<float> frequencies(model_.head_dim / 2), magnitudes(model_.head_dim / 2, 1.0f);
    for (int i = 0; i < model_.head_dim / 2; ++i) {
      frequencies[i] = std::pow(500000.0f, -2.0f * i / model_.head_dim);
    }
    rotary_ = {.inverse_frequencies = lab.Upload(frequencies),
               .magnitudes = lab.Upload(magnitudes),
               .of_sequence = lab.Upload(std::vector<int32_t>(line.batch))};
    lab.Weights(line.dtype);
    attend_ = MakeAttend(lab, sequences_, model_, CacheOf(lab, sequences_, model_, line.kv, 0),
                         Columns(qkv_, attended), attended_);
  }

  const MatrixView& logits() const { return logits_; }
  double bytes() const { return bytes_; }

  void Enqueue() {
    weight_at_ = 0;
    bytes_ = 0.0;
    const Pool& table = lab_.Weights(DType::kBF16);
    Do(cuda::EmbedTask{
        .ids = ids_,
        .table = ConstMatrixView(table.device, DType::kBF16, model_.vocab, model_.dim, model_.dim),
        .out = hidden_,
        .next = NextRowsOf(/*has_norm=*/true)});
    Do(cuda::RotaryAnglesTask{
        .rows = attend_.rows, .lengths = sequences_.lengths, .tables = rotary_, .out = angles_});
    for (int layer = 0; layer < model_.num_layers; ++layer) {
      Product(Part::kQkv, hidden_, qkv_);
      attend_.kv = CacheOf(lab_, sequences_, model_, line_.kv, layer);
      Do(cuda::RotateAndCacheTask{.qkv = qkv_,
                                  .angles = angles_,
                                  .rows = attend_.rows,
                                  .kv = attend_.kv,
                                  .num_heads = model_.num_heads});
      attend_.next = NextRowsOf(/*has_norm=*/false);
      attend_.out.data = has_rows() ? nullptr : attended_.data;
      Do(attend_);
      bytes_ += 8.0 * line_.batch * sequences_.length * model_.num_kv_heads *
                KvRowWords(line_.kv, model_.head_dim);
      Product(Part::kOut, attended_, hidden_);
      Product(Part::kGateUp, hidden_, gated_);
      Product(Part::kDown, gated_, hidden_);
    }
    Product(Part::kHead, hidden_, logits_);
  }

 private:
  MatrixView Matrix(int cols) {
    return {lab_.Allocate(size_t{4} * line_.rows * cols), DType::kF32, line_.rows, cols, cols};
  }
  static ConstMatrixView Columns(const MatrixView& whole, int cols) {
    return {whole.data, whole.dtype, whole.rows, cols, whole.stride};
  }
  template <typename Task>
  void Do(const Task& task) {
    lab_.Run(task, "a pass");
  }

  // The next weight of the pool.
  const void* NextWeight(size_t bytes) {
    const Pool& pool = lab_.Weights(line_.dtype);
    if (weight_at_ + bytes > pool.bytes) weight_at_ = 0;
    const void* const weight = lab_.At(pool, weight_at_);
    weight_at_ += bytes;
    bytes_ += static_cast<double>(bytes);
    return weight;
  }

  void Product(Part part, const MatrixView& x, const MatrixView& out) {
    const PartShape shape = ShapeOf(model_, part);
    cuda::NormTask norm;
    if (shape.has_norm) norm = {.weight = norm_, .epsilon = kEpsilon};
    cuda::TileProductTask task{
        .x = x,
        .norm = norm,
        .weight = NextWeight(WeightBytes(line_.dtype, shape.outputs, shape.inputs)),
        .dtype = line_.dtype,
        .num_tiles = shape.outputs / cuda::kTileOutputs,
        .num_sms = lab_.num_sms(),
        .end = shape.end,
        .out = out};
    if (!has_rows() || part == Part::kHead) {
      Do(cuda::PackRowsTask{.x = x,
                            .out = rows_[written_].image,
                            .quantizes = IsBlocks(line_.dtype),
                            .norm = norm,
                            .squares = rows_[written_].squares});
    }
    task.rows = rows_[written_].image;
    task.squares = rows_[written_].squares;
    if (part == Part::kOut || part == Part::kDown) task.next = NextRowsOf(/*has_norm=*/true);
    if (part == Part::kGateUp && has_rows()) {
      task.next = NextRowsOf(/*has_norm=*/false);
      task.out.data = nullptr;
    }
    Do(task);
  }

  // Whether operations write the rows of the next product, as they do in the engine.
  bool has_rows() const { return !IsBlocks(line_.dtype); }
  // Returns the place that holds no rows which the operation reads.
  cuda::NextRows NextRowsOf(bool has_norm) {
    if (!has_rows()) return {};
    written_ ^= 1;
    cuda::NextRows next = rows_[written_];
    if (!has_norm) {
      next.norm = nullptr;
      next.squares = nullptr;
    }
    return next;
  }

  Lab& lab_;
  const Line& line_;
  const Model& model_;
  const Sequences sequences_;
  MatrixView hidden_, qkv_, attended_, gated_, logits_, angles_;
  cuda::NextRows rows_[2];  // of products, in turn
  int written_ = 0;         // the last of them that was written
  const int32_t* ids_ = nullptr;
  const float* norm_ = nullptr;
  RotaryTables rotary_;
  cuda::AttendTask attend_;
  size_t weight_at_ = 0;
  double bytes_ = 0.0;
};

}  // namespace

// Passes write to the pool of the cache, so they are the last lines of a run.
void MeasurePass(Lab& lab, const Line& line, JsonLine* json) {
  lab.Floats();
  Pass pass(lab, line);
  if (!lab.ok()) return;
  const size_t count = size_t(std::min(line.rows, 16)) * line.model->vocab;
  const size_t bytes = size_t{4} * line.rows * line.model->vocab;
  lab.Poison(pass.logits().data, bytes);
  pass.Enqueue();
  lab.Wait();
  const std::vector<uint32_t> enqueued = lab.Download<uint32_t>(pass.logits().data, count);
  if (lab.ok()) lab.Poison(pass.logits().data, bytes);
  const Timing timing = lab.Time([&] { pass.Enqueue(); });
  Comparison comparison;
  comparison.Compare(lab.Download<uint32_t>(pass.logits().data, count), enqueued);
  AddComparison(comparison, json);
  AddTiming(lab, timing, 1, pass.bytes(), json);
}

}  // namespace tandem::kernel_lab
