#ifndef TANDEM_KERNELS_QUANTIZE_H_
#define TANDEM_KERNELS_QUANTIZE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "base/named_values.h"
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

// The values of the quantisation options. int8 and int4 name the best formats of 8 and 4 bits.
inline constexpr NamedValues<std::optional<DType>, 15> kQuantizations = {{
    {std::nullopt, "none"},
    {DType::kQ8_0, "q8_0"},
    {DType::kQ6K, "q6_k"},
    {DType::kQ5K, "q5_k"},
    {DType::kQ5_1, "q5_1"},
    {DType::kQ5_0, "q5_0"},
    {DType::kQ4K, "q4_k"},
    {DType::kQ4_1, "q4_1"},
    {DType::kQ4_0, "q4_0"},
    {DType::kIq4Nl, "iq4_nl"},
    {DType::kIq4Xs, "iq4_xs"},
    {DType::kQ3K, "q3_k"},
    {DType::kQ2K, "q2_k"},
    {DType::kQ8_0, "int8"},
    {DType::kQ4K, "int4"},
}};

}  // namespace tandem

#endif  // TANDEM_KERNELS_QUANTIZE_H_
