// The CUDA devices of this machine, and the choice among them. Builds without CUDA have none.
#ifndef TANDEM_KERNELS_CUDA_DEVICES_H_
#define TANDEM_KERNELS_CUDA_DEVICES_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem {

struct CudaOptions {
  bool keeps_f16 = false;  // multiply weights of f16 in f32 instead of converting them to bf16
};
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device, const CudaOptions& options);

// The number of devices; 0 without a working driver.
int NumCudaDevices();

// The same as MakeBackend, but "auto" means the CUDA device with the most free memory, if that is
// at least `needed_bytes`, and otherwise "cpu".
absl::StatusOr<std::unique_ptr<Backend>> MakeFittingBackend(std::string_view device,
                                                            const CpuOptions& cpu_options,
                                                            int64_t needed_bytes);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CUDA_DEVICES_H_
