#include "kernels/cpu/isa/simd_avx2.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/kernel_table.h"

namespace tandem {

constinit const CpuKernels kAvx2Kernels = MakeKernelTable("avx2");

}  // namespace tandem
