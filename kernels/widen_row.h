#ifndef TANDEM_KERNELS_WIDEN_ROW_H_
#define TANDEM_KERNELS_WIDEN_ROW_H_

#include <cstddef>

#include "kernels/matrix.h"

namespace tandem {

// out = the `size` weights at `row`: floats exactly, those of blocks (blocks.h) as products and
// then sums of f32, each rounded. REQUIRES: dtype is not kInt8; of blocks, size is a
// multiple of a block's inputs.
void WidenRow(const void* row, DType dtype, int size, float* out);
// `count` floats as `dtype`, one of floats, rounded to the nearest.
void NarrowRow(const float* values, int count, DType dtype, std::byte* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_WIDEN_ROW_H_
