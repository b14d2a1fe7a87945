#ifndef TANDEM_KERNELS_CPU_ISA_CPU_ISA_H_
#define TANDEM_KERNELS_CPU_ISA_CPU_ISA_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tandem {

struct IsaKernels {
  // Lives as long as the program. Without a name if this build leaves the instruction set out
  // (TANDEM_NATIVE, kernels/CMakeLists.txt).
  const CpuKernels* kernels = nullptr;
  bool is_supported = false;  // by this machine
};

// Every instruction set of this architecture that Tandem has kernels for, best first.
const std::vector<IsaKernels>& AllCpuKernels();
// The built ones of `all` that this machine can run.
std::vector<const CpuKernels*> SupportedCpuKernels(absl::Span<const IsaKernels> all);

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
