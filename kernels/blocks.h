// Weights in the block formats of GGUF files: whole numbers with their scales among them.
#ifndef TANDEM_KERNELS_BLOCKS_H_
#define TANDEM_KERNELS_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

namespace tandem {

// A row of a matrix is a sequence of blocks, each `inputs` weights in `bytes` bytes.
struct BlockShape {
  int inputs = 0;
  int bytes = 0;
};
// Of kQ8_0 and the others of IsBlocks; {1, SizeOf} of floats. REQUIRES: not kInt8 or kInt4.
BlockShape BlockShapeOf(DType dtype);
// Bytes of a row of `cols` weights. REQUIRES: cols is a multiple of the block's inputs.
size_t RowBytes(DType dtype, int64_t cols);

// What blocks of every format come down to: 32 consecutive weights, of which the first 16 and the
// last 16 have a scale and a minimum of their own,
//   weight i = scales[i / 16] * numbers[i] + minimums[i / 16].
// Scales and minimums are exact: the products of the format's numbers fit an f32.
inline constexpr int kBlockGroup = 32;
struct BlockGroup {
  int8_t numbers[kBlockGroup] = {};
  float scales[2] = {};
  float minimums[2] = {};
};
// Weights [32 * group, 32 * group + 32) of the row of blocks at `row`.
BlockGroup ReadBlockGroup(const std::byte* row, DType dtype, int group);

}  // namespace tandem

#endif  // TANDEM_KERNELS_BLOCKS_H_
