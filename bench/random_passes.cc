#include "bench/random_passes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "bench/fill_cache.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 5;
constexpr int kPageSize = 16;
constexpr float kEpsilon = 1e-5f;
constexpr float kTheta = 500000.0f;

template <typename T>
absl::StatusOr<Buffer> Uploaded(const std::vector<T>& values, Backend* backend) {
  const size_t bytes = values.size() * sizeof(T);
  ASSIGN_OR_RETURN(Buffer buffer, backend->Allocate(bytes));
  backend->Upload({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer.data());
  return buffer;
}

// Variance 1 / inputs: activations keep their size.
absl::StatusOr<PackedWeight> MakeWeight(uint32_t tensor, int outputs, int inputs, PartOrder order,
                                        DType dtype, std::optional<DType> quantized,
                                        ThreadPool* pool, Backend* backend) {
  constexpr int64_t kElementsAtOnce = 1 << 16;
  const auto element_bytes = static_cast<int64_t>(SizeOf(dtype));
  const int64_t count = int64_t{outputs} * inputs;
  const float radius = std::sqrt(3.0f / static_cast<float>(inputs));
  std::vector<std::byte> host(count * element_bytes);
  pool->Run([&](int thread) {
    for (int64_t first = thread * kElementsAtOnce; first < count;
         first += pool->num_threads() * kElementsAtOnce) {
      const int64_t share = std::min(kElementsAtOnce, count - first);
      FillRandom(kSeed, tensor, first, 0.0f, radius, dtype,
                 absl::MakeSpan(host).subspan(first * element_bytes, share * element_bytes));
    }
  });
  const auto rows = [&](int first, int num) {
    WeightPart part;
    part.matrix = {host.data() + first * inputs * element_bytes, dtype, num, inputs, inputs};
    return part;
  };
  if (order == PartOrder::kConcatenated) {
    const WeightPart part = rows(0, outputs);
    return backend->Pack({&part, 1}, order, quantized);
  }
  const WeightPart parts[] = {rows(0, outputs / 2), rows(outputs / 2, outputs / 2)};
  return backend->Pack(parts, order, quantized);
}

// The same numbers elsewhere in the device's memory.
absl::StatusOr<PackedWeight> CopyOf(const PackedWeight& weight, Backend* backend) {
  PackedWeight copy;
  copy.order = weight.order;
  copy.dtype = weight.dtype;
  copy.outputs = weight.outputs;
  copy.inputs = weight.inputs;
  copy.bytes_read = weight.bytes_read;
  ASSIGN_OR_RETURN(copy.data, backend->Allocate(weight.data.size_bytes()));
  backend->Copy(weight.data.data(), copy.data.data(), weight.data.size_bytes());
  return copy;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RandomPasses>> RandomPasses::Create(const RandomModelShape& shape,
                                                                   std::optional<DType> quantized,
                                                                   KvDType kv_dtype, int max_rows,
                                                                   Backend* backend) {
  std::unique_ptr<RandomPasses> passes(new RandomPasses(shape, quantized, kv_dtype, backend));
  RETURN_IF_ERROR(passes->MakeWeights());
  RETURN_IF_ERROR(passes->MakeActivations(max_rows));
  RETURN_IF_ERROR(backend->Synchronize());
  return passes;
}

absl::Status RandomPasses::MakeWeights() {
  const RandomModelShape& s = shape_;
  ThreadPool pool(NumUsableCores());
  const auto make = [&](uint32_t tensor, int outputs, int inputs, PartOrder order) {
    return MakeWeight(tensor, outputs, inputs, order, s.dtype, quantized_, &pool, &backend_);
  };
  constexpr PartOrder kPlain = PartOrder::kConcatenated;
  layers_.resize(s.layers);
  Layer& first = layers_[0];
  ASSIGN_OR_RETURN(first[kQkv], make(kQkv, qkv_size(), s.hidden, kPlain));
  ASSIGN_OR_RETURN(first[kAttentionOut],
                   make(kAttentionOut, s.hidden, s.heads * s.head_dim, kPlain));
  ASSIGN_OR_RETURN(first[kGateUp], make(kGateUp, 2 * s.ffn, s.hidden, PartOrder::kGateAndUp));
  ASSIGN_OR_RETURN(first[kDown], make(kDown, s.hidden, s.ffn, kPlain));
  ASSIGN_OR_RETURN(head_, make(kNumLayerParts, s.vocab, s.hidden, kPlain));
  for (int layer = 1; layer < s.layers; ++layer) {
    for (int part = 0; part < kNumLayerParts; ++part) {
      ASSIGN_OR_RETURN(layers_[layer][part], CopyOf(first[part], &backend_));
    }
  }
  return absl::OkStatus();
}

absl::Status RandomPasses::MakeActivations(int max_rows) {
  const RandomModelShape& s = shape_;
  ASSIGN_OR_RETURN(norm_,
                   Uploaded(std::vector<float>(std::max(s.hidden, s.head_dim), 1.0f), &backend_));
  std::vector<float> frequencies(s.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(kTheta, -2.0f * static_cast<float>(i) / s.head_dim);
  }
  ASSIGN_OR_RETURN(frequencies_, Uploaded(frequencies, &backend_));
  const auto make = [&](int cols) -> absl::StatusOr<Buffer> {
    std::vector<float> values(static_cast<size_t>(max_rows) * cols);
    FillRandom(kSeed, kNumLayerParts + 1, 0, 0.0f, 1.0f, DType::kF32,
               {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
    return Uploaded(values, &backend_);
  };
  ASSIGN_OR_RETURN(first_hidden_, make(s.hidden));
  ASSIGN_OR_RETURN(hidden_, make(s.hidden));
  ASSIGN_OR_RETURN(normed_, make(s.hidden));
  ASSIGN_OR_RETURN(qkv_, make(qkv_size()));
  ASSIGN_OR_RETURN(attended_, make(s.heads * s.head_dim));
  ASSIGN_OR_RETURN(mlp_, make(s.ffn));
  ASSIGN_OR_RETURN(angles_, make(s.head_dim));
  ASSIGN_OR_RETURN(logits_, make(s.vocab));
  return absl::OkStatus();
}

absl::Status RandomPasses::SetSequences(int batch, int context, int rows) {
  batch_ = batch;
  rows_ = rows;
  context_ = context;
  max_pages_ = (context + rows + kPageSize - 1) / kPageSize;
  sequences_.clear();
  cache_.reset();
  const KvLayout layout{.num_layers = shape_.layers,
                        .num_kv_heads = shape_.kv_heads,
                        .head_dim = shape_.head_dim,
                        .page_size = kPageSize,
                        .dtype = kv_dtype_};
  ASSIGN_OR_RETURN(cache_, PagedKvCache::Create(&backend_, layout, batch * max_pages_));
  FillCache(&backend_, cache_.get());
  std::vector<int32_t> starts = {0};
  std::vector<int32_t> pages;
  for (int i = 0; i < batch; ++i) {
    sequences_.push_back(cache_->NewSequence());
    RETURN_IF_ERROR(sequences_.back().Extend(context + rows));
    pages.insert(pages.end(), sequences_.back().pages().begin(), sequences_.back().pages().end());
    starts.push_back((i + 1) * rows);
  }
  ASSIGN_OR_RETURN(starts_, Uploaded(starts, &backend_));
  ASSIGN_OR_RETURN(lengths_, Uploaded(std::vector<int32_t>(batch, context + rows), &backend_));
  ASSIGN_OR_RETURN(page_tables_, Uploaded(pages, &backend_));
  ASSIGN_OR_RETURN(tables_, Uploaded(std::vector<int32_t>(batch, 0), &backend_));
  return backend_.Synchronize();
}

MatrixView RandomPasses::Rows(const Buffer& buffer, int rows, int cols) const {
  TANDEM_CHECK(sizeof(float) * rows * static_cast<size_t>(cols) <= buffer.size_bytes());
  return {buffer.data(), DType::kF32, rows, cols, cols};
}

RaggedRows RandomPasses::ragged() const {
  return {.starts = static_cast<const int32_t*>(starts_.data()),
          .batch = batch_,
          .num_rows = batch_ * rows_};
}

PagedKvView RandomPasses::ViewOf(int layer) const {
  PagedKvView view = cache_->LayerView(layer);
  view.page_tables = static_cast<const int32_t*>(page_tables_.data());
  view.lengths = static_cast<const int32_t*>(lengths_.data());
  view.batch = batch_;
  view.max_pages = max_pages_;
  return view;
}

NormedRows RandomPasses::Normed(int rows) const {
  return {.x = Rows(hidden_, rows, shape_.hidden),
          .weight = static_cast<const float*>(norm_.data()),
          .epsilon = kEpsilon,
          .normed = Rows(normed_, rows, shape_.hidden)};
}

void RandomPasses::Product(LayerPart part, int layer, int rows) {
  const PackedWeight& weight = layers_[layer][part];
  const MatrixView hidden = Rows(hidden_, rows, shape_.hidden);
  const MatrixView mlp = Rows(mlp_, rows, shape_.ffn);
  switch (part) {
    case kQkv:
      return backend_.MatMul(Normed(rows), weight, Rows(qkv_, rows, qkv_size()));
    case kAttentionOut:
      return backend_.MatMulAdd(Rows(attended_, rows, shape_.heads * shape_.head_dim), weight,
                                hidden);
    case kGateUp:
      return backend_.MatMulGated(Normed(rows), weight, Activation::kSilu, mlp);
    case kDown:
      return backend_.MatMulAdd(mlp, weight, hidden);
    case kNumLayerParts:
      break;
  }
  TANDEM_CHECK(false);
}

void RandomPasses::Head(int rows) {
  backend_.MatMul(Normed(rows), head_, Rows(logits_, rows, shape_.vocab));
}

void RandomPasses::Attention(int layer) {
  const int rows = batch_ * rows_;
  ConstMatrixView queries = Rows(qkv_, rows, qkv_size());
  queries.cols = shape_.heads * shape_.head_dim;
  backend_.Attend(queries, ragged(), ViewOf(layer),
                  {.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim))},
                  Rows(attended_, rows, shape_.heads * shape_.head_dim));
}

void RandomPasses::Pass() {
  const int rows = batch_ * rows_;
  const auto* const ones = static_cast<const float*>(norm_.data());
  const MatrixView angles = Rows(angles_, rows, shape_.head_dim);
  HeadNorms norms;
  if (shape_.family == "qwen3") norms = {.query = ones, .key = ones, .epsilon = kEpsilon};
  // In the embedding's place.
  backend_.Copy(first_hidden_.data(), hidden_.data(),
                sizeof(float) * rows * static_cast<size_t>(shape_.hidden));
  backend_.RotaryAngles(ragged(), static_cast<const int32_t*>(lengths_.data()),
                        {.inverse_frequencies = static_cast<const float*>(frequencies_.data()),
                         .magnitudes = ones,
                         .of_sequence = static_cast<const int32_t*>(tables_.data())},
                        angles);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    Product(kQkv, layer, rows);
    backend_.RotateAndCache(Rows(qkv_, rows, qkv_size()), angles, norms, ragged(), ViewOf(layer));
    Attention(layer);
    Product(kAttentionOut, layer, rows);
    Product(kGateUp, layer, rows);
    Product(kDown, layer, rows);
  }
  Head(rows);
}

template <typename Count>
double RandomPasses::SumOfWeights(Count count) const {
  double sum = count(head_);
  for (const Layer& layer : layers_) {
    for (const PackedWeight& weight : layer) sum += count(weight);
  }
  return sum;
}

double RandomPasses::bytes_per_pass() const {
  return SumOfWeights([](const PackedWeight& w) { return static_cast<double>(w.bytes_read); });
}

double RandomPasses::weights_per_pass() const {
  return SumOfWeights(
      [](const PackedWeight& w) { return static_cast<double>(w.outputs) * w.inputs; });
}

double RandomPasses::attention_bytes() const {
  return 2.0 * 4.0 * KvRowWords(kv_dtype_, shape_.head_dim) * shape_.kv_heads * batch_ *
         (context_ + rows_);
}

std::vector<float> RandomPasses::Logits() {
  std::vector<float> logits(static_cast<size_t>(batch_) * rows_ * shape_.vocab);
  backend_.Download(logits_.data(),
                    {reinterpret_cast<std::byte*>(logits.data()), logits.size() * sizeof(float)});
  return logits;
}

}  // namespace tandem
