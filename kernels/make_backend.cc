#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "kernels/built_backends.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const CpuOptions& cpu_options) {
  if (device == "cpu") return MakeCpuBackend(cpu_options);
  if (device == "auto") {
    auto cuda = MakeCudaBackend(0);
    if (cuda.ok()) return cuda;
    // Without a driver, the CPU is expected: log nothing.
    if (HasCudaDriver()) {
      Log(LogLevel::kInfo, absl::StrCat("device=cpu reason=\"", cuda.status().message(), "\""));
    }
    return MakeCpuBackend(cpu_options);
  }
  absl::string_view number(device.data(), device.size());
  int index = 0;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0) {
    return MakeCudaBackend(index);
  }
  return absl::InvalidArgumentError(absl::StrCat("device: must be auto, cpu or cuda:N, got \"",
                                                 absl::string_view(device.data(), device.size()),
                                                 "\""));
}

std::string BuiltBackends() {
  return absl::StrCat(absl::StrJoin(BuiltCpuIsas(), ", "),
                      "; CUDA: ", BuiltWithCuda() ? TANDEM_CUDA_ARCHITECTURES : "none");
}

}  // namespace tandem
