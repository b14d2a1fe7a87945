#ifndef TANDEM_KERNELS_CPU_ISA_CPU_ISA_H_
#define TANDEM_KERNELS_CPU_ISA_CPU_ISA_H_

#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {

// The kernels of every instruction set that this build has kernels for and this machine can run,
// best first. They live as long as the program.
std::vector<const CpuKernels*> SupportedCpuKernels();
// The environment variable that names the best instruction set to use, so that what a smaller
// machine does can be seen on a larger one. MakeCpuBackend refuses other names.
inline constexpr char kMaxCpuIsa[] = "TANDEM_MAX_CPU_ISA";
// The supported kernels from those of $TANDEM_MAX_CPU_ISA on.
std::vector<const CpuKernels*> RunnableCpuKernels();
// The first entry of RunnableCpuKernels().
inline const CpuKernels& BestCpuKernels() {
  static const CpuKernels& kernels = *RunnableCpuKernels().front();
  return kernels;
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_CPU_ISA_H_
