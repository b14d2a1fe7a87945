#ifndef TANDEM_KERNELS_WIDEN_ROW_H_
#define TANDEM_KERNELS_WIDEN_ROW_H_

#include "kernels/matrix.h"

namespace tandem {

// out = the `size` floats at `row`, exactly.
// REQUIRES: dtype is one of floats.
void WidenRow(const void* row, DType dtype, int size, float* out);

}  // namespace tandem

#endif  // TANDEM_KERNELS_WIDEN_ROW_H_
