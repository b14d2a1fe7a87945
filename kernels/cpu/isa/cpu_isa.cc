#include "kernels/cpu/isa/cpu_isa.h"

#include <algorithm>
#include <string>

#include "base/environment.h"

namespace tandem {

std::vector<const CpuKernels*> RunnableCpuKernels() {
  std::vector<const CpuKernels*> kernels = SupportedCpuKernels();
  const std::string best = EnvironmentVariable(kMaxCpuIsa);
  const auto first = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const CpuKernels* one) { return one->name == best; });
  if (first != kernels.end()) kernels.erase(kernels.begin(), first);
  return kernels;
}

}  // namespace tandem
