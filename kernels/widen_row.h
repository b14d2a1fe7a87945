#ifndef TANDEM_KERNELS_WIDEN_ROW_H_
#define TANDEM_KERNELS_WIDEN_ROW_H_

#include "kernels/matrix.h"

namespace tandem {

// out = the `size` weights at `row`: floats exactly, those of blocks (blocks.h) as products and
// then sums of f32, each rounded. REQUIRES: dtype is not kInt8; of blocks, size is a
// multiple of a block's inputs.
void WidenRow(const void* row, DType dtype, int size, float* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_WIDEN_ROW_H_
