#ifndef TANDEM_KERNELS_QUANTIZE_H_
#define TANDEM_KERNELS_QUANTIZE_H_

#include <cstddef>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace tandem {

// Quantises a row of `cols` weights to a block format (blocks.h), and searches for scales and
// minimums with a small sum of squared errors. The bits depend only on the row. A block that
// contains a non-finite weight, or whose scale does not fit an f16, becomes non-finite as a whole.
//   out: RowBytes(dtype, cols); the rest of the last block is zeros
// REQUIRES: cols is a multiple of kBlockGroup.
void QuantizeRow(const float* weights, int cols, DType dtype, std::byte* out);

// Returns row `row` of a matrix as blocks of `dtype`: the row itself if the matrix has that dtype,
// else `*storage`, into which it is quantised.
const std::byte* BlockRow(const ConstMatrixView& matrix, int row, DType dtype,
                          std::vector<std::byte>* storage);

// Quantises all rows. Returns their blocks, one row after the other.
std::vector<std::byte> QuantizeMatrix(const ConstMatrixView& matrix, DType dtype, ThreadPool* pool);

}  // namespace tandem

#endif  // TANDEM_KERNELS_QUANTIZE_H_
