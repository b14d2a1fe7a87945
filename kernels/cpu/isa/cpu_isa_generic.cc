// Replaces cpu_isa_x86.cc on other architectures.
#include "kernels/cpu/isa/cpu_isa.h"

namespace tandem {

std::vector<const CpuKernels*> SupportedCpuKernels() { return {&kPortableKernels}; }

}  // namespace tandem
