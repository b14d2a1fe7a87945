#include "kernels/cpu/simd_avx512.h"
// The vocabulary comes first.
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vnni_dot_avx512.h"

namespace tandem {

constinit const CpuKernels kAvx512VnniKernels = MakeKernelTable<VnniDot>("avx512_vnni");

}  // namespace tandem
