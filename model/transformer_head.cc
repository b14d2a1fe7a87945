// The parts of Transformer for heads: SetHead gathers rows of the head, KeepState keeps states for
// a draft head, and TakeStates and EnterHead read them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "model/checkpoint/model_tensors.h"
#include "model/transformer.h"

namespace tandem {

ConstMatrixView GatheredRows(const ConstMatrixView& matrix, absl::Span<const TokenId> rows,
                             std::vector<std::byte>* gathered) {
  const size_t row_bytes = RowBytes(matrix.dtype, matrix.cols);
  const size_t stride = RowBytes(matrix.dtype, matrix.stride);
  gathered->resize(rows.size() * row_bytes);
  const auto* const from = static_cast<const std::byte*>(matrix.data);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(gathered->data() + i * row_bytes, from + rows[i] * stride, row_bytes);
  }
  return ConstMatrixView(gathered->data(), matrix.dtype, static_cast<int>(rows.size()), matrix.cols,
                         matrix.cols);
}

absl::StatusOr<ConstMatrixView> Transformer::HeadMatrix() const {
  if (config_.tied_embeddings) return weights_->host_embedding;
  return weights_->source->Get(kHeadTensor, {config_.vocab_size, config_.hidden_size});
}

void Transformer::ForgetHeadMatrix() const {
  if (!config_.tied_embeddings) weights_->source->Forget(kHeadTensor);
}

absl::Status Transformer::SetHead(std::vector<TokenId> ids) {
  TANDEM_CHECK(group_ == nullptr && backend_->memory_is_host() &&
               std::is_sorted(ids.begin(), ids.end()));
  TANDEM_CHECK(ids.empty() || (ids.front() >= 0 && ids.back() < config_.vocab_size));
  ASSIGN_OR_RETURN(ConstMatrixView matrix, HeadMatrix());
  std::vector<std::byte> gathered;
  if (!ids.empty()) matrix = GatheredRows(matrix, ids, &gathered);
  const WeightPart part{.matrix = matrix, .bias = nullptr};
  absl::StatusOr<PackedWeight> packed =
      backend_->Pack({&part, 1}, PartOrder::kConcatenated, weights_->head_format);
  ForgetHeadMatrix();
  if (!packed.ok()) return packed.status();
  weights_->bytes_packed_at_load += packed->data.size_bytes();
  weights_->bytes_packed_at_load -= weights_->head.data.size_bytes();
  weights_->head = *std::move(packed);
  weights_->num_head_tokens = weights_->head.outputs;
  parts_.head_rows = {0, head_tokens()};
  weights_->head_ids = std::move(ids);
  graph_cache_->Forget();
  return absl::OkStatus();
}

void Transformer::KeepStates(std::vector<int> layers) {
  TANDEM_CHECK(group_ == nullptr && !is_draft_head() && absl::c_all_of(layers, [this](int layer) {
                 return 0 <= layer && layer <= config_.num_layers;
               }));
  graph_cache_->Forget();
  kept_layers_ = std::move(layers);
  workspace_.states = {};
}

// Copies the input of `layer` to its columns of the states, if KeepStates named the layer.
void Transformer::KeepState(int layer, int rows, const int32_t* all_rows) {
  const int hidden_size = config_.hidden_size;
  const MatrixView hidden = View(workspace_.hidden, rows, hidden_size);
  const MatrixView states = View(workspace_.states, rows, state_size());
  for (int i = 0; i < static_cast<int>(kept_layers_.size()); ++i) {
    if (kept_layers_[i] != layer) continue;
    MatrixView left = states;
    left.data = static_cast<float*>(states.data) + int64_t{i} * hidden_size;
    left.cols = hidden_size;
    if (layer < config_.num_layers) {
      backend_->GatherRows(hidden, all_rows, left);
      continue;
    }
    const NormedRows normed = Normed(weights_->final_norm, hidden, left);
    backend_->RmsNorm(normed.x, normed.weight, normed.epsilon, left);
  }
}

absl::Status Transformer::ReserveReadStates(int rows) {
  const size_t most = std::max(config_.hidden_size, read_state_size());
  return Grow(&workspace_.read_states, sizeof(float) * rows * most);
}

// Copies the states that the requests read, before the pass overwrites them: a head's own states
// are this model's rows of the previous pass.
absl::Status Transformer::TakeStates(absl::Span<const ForwardRequest> requests, int rows) {
  reads_own_states_ = requests[0].reads_own_states;
  const int cols = reads_own_states_ ? config_.hidden_size : read_state_size();
  RETURN_IF_ERROR(ReserveReadStates(rows));
  auto* to = static_cast<float*>(workspace_.read_states.data());
  for (const ForwardRequest& request : requests) {
    const ConstMatrixView& from = request.states;
    TANDEM_CHECK(request.reads_own_states == reads_own_states_ && from.cols == cols &&
                 from.stride == cols && from.dtype == DType::kF32 &&
                 from.rows == static_cast<int>(request.tokens.size()));
    const int64_t size = int64_t{from.rows} * cols;
    backend_->Copy(from.data, to, size * sizeof(float));
    to += size;
  }
  return absl::OkStatus();
}

// Prepares the input of a draft head's layer: its rows in `hidden`, and the input rows of its first
// product in `joined`.
void Transformer::EnterHead(const int32_t* ids, int rows, const int32_t* all_rows) {
  const TransformerWeights::StateParts& parts = weights_->state_parts;
  const int size = config_.hidden_size;
  const MatrixView hidden = View(workspace_.hidden, rows, size);
  const MatrixView embedded = View(workspace_.normed, rows, size);
  const MatrixView joined = View(workspace_.joined, rows, 2 * size);
  MatrixView left = joined;
  left.cols = size;
  MatrixView right = left;
  right.data = static_cast<float*>(joined.data) + size;
  const auto norm = [&](const Buffer& weight, ConstMatrixView x, MatrixView out) {
    backend_->RmsNorm(x, static_cast<const float*>(weight.data()), config_.rms_norm_epsilon, out);
  };
  const bool is_fused = config_.state_input == StateInput::kFused;
  const int cols = reads_own_states_ ? size : read_state_size();
  const MatrixView states = View(workspace_.read_states, rows, cols);
  backend_->Embed(ids, weights_->embedding, embedded, {});
  norm(is_fused ? parts.embedding_norm : weights_->layers.front().attention_norm, embedded, left);
  if (is_fused) {
    norm(parts.state_norm, states, right);
    backend_->MatMul(joined, parts.fc, hidden);
    return;
  }
  if (reads_own_states_) {
    backend_->GatherRows(states, all_rows, hidden);
  } else {
    if (parts.states_norm.data() != nullptr) norm(parts.states_norm, states, states);
    backend_->MatMul(states, parts.fc, hidden);
  }
  norm(parts.state_norm, hidden, right);
  if (config_.norms_residual) backend_->GatherRows(right, all_rows, hidden);
}

}  // namespace tandem
