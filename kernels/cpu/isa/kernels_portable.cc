#include "kernels/cpu/isa/simd_portable.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/kernel_table.h"

namespace tandem {

constinit const CpuKernels kPortableKernels = MakeKernelTable("portable");

}  // namespace tandem
