#include "kernels/cpu/isa/cpu_isa.h"

#include <algorithm>
#include <string>

#include "base/environment.h"
#include "kernels/backend.h"
#include "kernels/built_backends.h"

namespace tandem {

std::vector<const CpuKernels*> SupportedCpuKernels(absl::Span<const IsaKernels> all) {
  std::vector<const CpuKernels*> supported;
  for (const auto& [kernels, is_supported] : all) {
    if (is_supported && kernels->name != nullptr) supported.push_back(kernels);
  }
  return supported;
}

std::vector<const CpuKernels*> RunnableCpuKernels() {
  std::vector<const CpuKernels*> kernels = SupportedCpuKernels(AllCpuKernels());
  const std::string best = EnvironmentVariable(kMaxCpuIsa);
  const auto first = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const CpuKernels* one) { return one->name == best; });
  if (first != kernels.end()) kernels.erase(kernels.begin(), first);
  return kernels;
}

std::vector<std::string> CpuIsas() {
  std::vector<std::string> names;
  for (const CpuKernels* kernels : RunnableCpuKernels()) names.push_back(kernels->name);
  return names;
}

std::vector<std::string> BuiltCpuIsas() {
  std::vector<std::string> names;
  for (const auto& [kernels, is_supported] : AllCpuKernels()) {
    if (kernels->name != nullptr) names.push_back(kernels->name);
  }
  return names;
}

std::string HintAtOtherIsas() {
  if (BuiltCpuIsas().size() == AllCpuKernels().size()) return "";
  return " (built for one machine; `./dev build --portable` builds all instruction sets)";
}

}  // namespace tandem
