// The head of a Transformer that has one of gathered rows.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/blocks.h"
#include "model/gathered_rows.h"
#include "model/transformer.h"

namespace tandem {
namespace {

constexpr char kOwnHead[] = "lm_head.weight";

}  // namespace

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
  if (config_.tied_embeddings) return host_embedding_;
  return weights_->Get(kOwnHead, {config_.vocab_size, config_.hidden_size});
}

void Transformer::ForgetHeadMatrix() const {
  if (!config_.tied_embeddings) weights_->Forget(kOwnHead);
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
      backend_->Pack({&part, 1}, PartOrder::kConcatenated, head_format_);
  ForgetHeadMatrix();
  if (!packed.ok()) return packed.status();
  bytes_packed_at_load_ += packed->data.size_bytes();
  bytes_packed_at_load_ -= head_.data.size_bytes();
  head_ = *std::move(packed);
  num_head_tokens_ = head_.outputs;
  parts_ = PartsOf(/*rank=*/0);
  head_ids_ = std::move(ids);
  graph_cache_->Forget();
  return absl::OkStatus();
}

}  // namespace tandem
