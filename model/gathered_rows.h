#ifndef TANDEM_MODEL_GATHERED_ROWS_H_
#define TANDEM_MODEL_GATHERED_ROWS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "kernels/matrix.h"
#include "tandem/types.h"

namespace tandem {

// These rows of a matrix in the host's memory, one after the other, in `*gathered`.
ConstMatrixView GatheredRows(const ConstMatrixView& matrix, absl::Span<const TokenId> rows,
                             std::vector<std::byte>* gathered);

}  // namespace tandem

#endif  // TANDEM_MODEL_GATHERED_ROWS_H_
