#include "kernels/cpu/isa/simd_avx512.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/kernel_table.h"

namespace tandem {

constinit const CpuKernels kAvx512Kernels = MakeKernelTable("avx512");

}  // namespace tandem
