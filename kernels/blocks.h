// Weights in the block formats of GGUF files: integers, stored together with their scales.
#ifndef TANDEM_KERNELS_BLOCKS_H_
#define TANDEM_KERNELS_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/float16.h"
#include "kernels/matrix.h"

namespace tandem {

// A row of a matrix is a sequence of blocks. Each holds `inputs` weights in `bytes` bytes.
struct BlockShape {
  int inputs = 0;
  int bytes = 0;
};
// The number of consecutive weights in a group (BlockGroup).
inline constexpr int kBlockGroup = 32;
// The block shape of a format; {1, SizeOf(dtype)} for floats. REQUIRES: dtype is not kInt8.
BlockShape BlockShapeOf(DType dtype);
// Bytes of a row of `cols` weights. The last block counts as a whole even if it is not full, which
// does not occur in files. REQUIRES: for block formats, cols is a multiple of kBlockGroup.
size_t RowBytes(DType dtype, int64_t cols);
// A view of rows [begin, end) of a matrix, whose data may be null.
inline ConstMatrixView RowsOf(ConstMatrixView matrix, int begin, int end) {
  const size_t skipped = begin * RowBytes(matrix.dtype, matrix.stride);
  if (matrix.data != nullptr) matrix.data = static_cast<const std::byte*>(matrix.data) + skipped;
  matrix.rows = end - begin;
  return matrix;
}

// The numbers that the codes of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

// 32 consecutive weights, in a form common to all formats. The first 16 and the last 16 each have a
// scale and a minimum:
//   weight i = ScaleOf(i / 16) * NumberOf(i) + MinimumOf(i / 16).
// Scales and minimums are exact: products of the format's numbers fit an f32.
struct BlockGroup {
  alignas(4) uint8_t codes[kBlockGroup] = {};  // a number plus `zero`, or an index of kIq4Numbers
  uint8_t zero = 0;
  bool has_table = false;
  uint16_t scale = 0;    // f16
  uint16_t minimum = 0;  // f16
  int8_t scale_factors[2] = {1, 1};
  int8_t minimum_factors[2] = {1, 1};

  int NumberOf(int i) const { return has_table ? kIq4Numbers[codes[i]] : codes[i] - zero; }
  float ScaleOf(int half) const {
    return F16ToFloat(scale) * static_cast<float>(scale_factors[half]);
  }
  float MinimumOf(int half) const {
    return F16ToFloat(minimum) * static_cast<float>(minimum_factors[half]);
  }
};
// Reads weights [32 * group, 32 * group + 32) of the row of blocks at `row`.
BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group);
// Writes one block, from which ReadBlockGroup reads the same groups.
//   groups: all groups of the block; in formats with factors, `scale` and `minimum` are the same
//     in all of them
void WriteBlock(absl::Span<const BlockGroup> groups, DType dtype, std::byte* out);

// Converts the `size` weights at `row` to f32. Floats are exact; weights of blocks are a product
// and then a sum in f32, each rounded. REQUIRES: dtype is not kInt8; for block formats, size is a
// multiple of kBlockGroup.
void WidenRow(const void* row, DType dtype, int size, float* out);
// Converts `count` floats to `dtype`, which must be f32, f16 or bf16, rounding to nearest.
void NarrowRow(const float* values, int count, DType dtype, std::byte* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_BLOCKS_H_
