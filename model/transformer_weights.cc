#include "model/transformer_weights.h"

#include <cstring>

#include "kernels/blocks.h"

namespace tandem {

void TransformerWeights::ForgetPacked() {
  while (!unpacked.empty() && unpacked.front().weight->unpacked.empty()) {
    for (const std::string& tensor : unpacked.front().tensors) source->Forget(tensor);
    unpacked.pop_front();
  }
}

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

}  // namespace tandem
