// Weights in the block formats of GGUF files: integers with their scales among them.
#ifndef TANDEM_KERNELS_BLOCKS_H_
#define TANDEM_KERNELS_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/float16.h"
#include "kernels/matrix.h"

namespace tandem {

// A row of a matrix is a sequence of blocks, each `inputs` weights in `bytes` bytes.
struct BlockShape {
  int inputs = 0;
  int bytes = 0;
};
// Consecutive weights that have scales and minimums together.
inline constexpr int kBlockGroup = 32;
// Of kQ8_0 and the others of IsBlocks; {1, SizeOf} of floats. REQUIRES: not kInt8.
BlockShape BlockShapeOf(DType dtype);
// Bytes of a row of `cols` weights, with the whole of a last block that is not full; files have
// none such. REQUIRES: cols is a multiple of kBlockGroup, of blocks.
size_t RowBytes(DType dtype, int64_t cols);
// Rows [begin, end) of a matrix, which may have no data.
inline ConstMatrixView RowsOf(ConstMatrixView matrix, int begin, int end) {
  const size_t skipped = begin * RowBytes(matrix.dtype, matrix.stride);
  if (matrix.data != nullptr) matrix.data = static_cast<const std::byte*>(matrix.data) + skipped;
  matrix.rows = end - begin;
  return matrix;
}

// The numbers that the halves of a byte stand for in IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

// What blocks of every format come down to: 32 consecutive weights, of which the first 16 and the
// last 16 have a scale and a minimum of their own,
//   weight i = ScaleOf(i / 16) * NumberOf(i) + MinimumOf(i / 16).
// Both are exact: the products of the format's numbers fit an f32.
struct BlockGroup {
  alignas(
      4) uint8_t codes[kBlockGroup] = {};  // a number is its code less `zero`, or of kIq4Numbers
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
// Weights [32 * group, 32 * group + 32) of the row of blocks at `row`.
BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group);
// One block, of whose groups ReadBlockGroup says the same.
//   groups: all of the block; of formats with factors their scale and minimum are the same
void WriteBlock(absl::Span<const BlockGroup> groups, DType dtype, std::byte* out);

// out = the `size` weights at `row`: floats exactly, those of blocks as products and
// then sums of f32, each rounded. REQUIRES: dtype is not kInt8; of blocks, size is a
// multiple of a block's inputs.
void WidenRow(const void* row, DType dtype, int size, float* out);
// `count` floats as `dtype`, one of floats, rounded to the nearest.
void NarrowRow(const float* values, int count, DType dtype, std::byte* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_BLOCKS_H_
