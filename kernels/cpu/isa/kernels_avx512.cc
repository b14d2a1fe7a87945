#include "kernels/cpu/isa/simd_avx512.h"
// The vocabulary comes first.
#include "kernels/cpu/kernel_table.h"

namespace tandem {

constinit const CpuKernels kAvx512Kernels = MakeKernelTable("avx512");

}  // namespace tandem
