#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/string_view.h"
#include "kernels/backend.h"
#include "kernels/built_backends.h"
#include "kernels/cuda_devices.h"

namespace tandem {

namespace {

// Logs which device `auto` means, and why.
void LogChoice(absl::string_view device, absl::string_view reason) {
  Log(LogLevel::kInfo, absl::StrCat("device=", device, " reason=\"", reason, "\""));
}

// Chooses between the CPU and all CUDA devices, or the first if it is unknown what is needed.
absl::StatusOr<std::unique_ptr<Backend>> Choose(std::optional<int64_t> needed_bytes,
                                                const CpuOptions& cpu, const CudaOptions& cuda) {
  const int num_devices = needed_bytes.has_value() ? std::max(1, NumCudaDevices()) : 1;
  std::unique_ptr<Backend> best;
  int64_t most = 0;
  absl::Status failure;
  for (int i = 0; i < num_devices; ++i) {
    absl::StatusOr<std::unique_ptr<Backend>> made = MakeCudaBackend(i, cuda);
    failure.Update(made.status());
    if (!made.ok()) continue;
    const int64_t bytes = (*made)->free_memory_bytes().value_or(0);
    if (best != nullptr && bytes <= most) continue;
    best = *std::move(made);
    most = bytes;
  }
  if (best != nullptr) {
    if (!needed_bytes.has_value()) return best;
    const std::string memory = absl::StrCat(View(best->name()), " has the most free memory, ", most,
                                            " bytes; the models need about ", *needed_bytes);
    const bool fits = *needed_bytes <= most;
    LogChoice(fits ? View(best->name()) : "cpu", memory);
    if (fits) return best;
  } else if (HasCudaDriver()) {
    // Without a driver, the CPU is expected: log nothing.
    LogChoice("cpu", failure.message());
  }
  return MakeCpuBackend(cpu);
}

absl::StatusOr<std::unique_ptr<Backend>> Make(std::string_view device, const CpuOptions& cpu,
                                              std::optional<int64_t> needed_bytes) {
  if (device == "cpu") return MakeCpuBackend(cpu);
  const CudaOptions cuda{.keeps_f16 = cpu.compute == CpuCompute::kF32};
  if (device == "auto") return Choose(needed_bytes, cpu, cuda);
  absl::string_view number(device.data(), device.size());
  int index = 0;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0) {
    return MakeCudaBackend(index, cuda);
  }
  return absl::InvalidArgumentError(absl::StrCat("device: must be auto, cpu or cuda:N, got \"",
                                                 absl::string_view(device.data(), device.size()),
                                                 "\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(std::string_view device,
                                                     const CpuOptions& cpu_options) {
  return Make(device, cpu_options, std::nullopt);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeFittingBackend(std::string_view device,
                                                            const CpuOptions& cpu_options,
                                                            int64_t needed_bytes) {
  return Make(device, cpu_options, needed_bytes);
}

std::string BuiltBackends() {
  return absl::StrCat(absl::StrJoin(BuiltCpuIsas(), ", "),
                      "; CUDA: ", BuiltWithCuda() ? TANDEM_CUDA_ARCHITECTURES : "none");
}

}  // namespace tandem
