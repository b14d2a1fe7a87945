// Replaces kernels/cuda/ in builds without CUDA.
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cuda_devices.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device) {
  return absl::UnavailableError(
      absl::StrCat("cuda:", device,
                   ": this build has no CUDA backend; with nvcc, `TANDEM_CUDA=ON ./dev build` "
                   "makes one"));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device, const CudaOptions&) {
  return MakeCudaBackend(device);
}

int NumCudaDevices() { return 0; }

bool BuiltWithCuda() { return false; }

bool HasCudaDriver() { return false; }

}  // namespace tandem
