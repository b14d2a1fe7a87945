// Replaces cpu_isa_x86.cc on other architectures.
#include "kernels/cpu/isa/cpu_isa.h"

namespace tandem {

const std::vector<IsaKernels>& AllCpuKernels() {
  static const std::vector<IsaKernels> all = {{&kPortableKernels, true}};
  return all;
}

}  // namespace tandem
