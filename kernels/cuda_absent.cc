// Stands in for kernels/cuda/ in builds without CUDA.
#include "kernels/backend.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int) {
  return absl::UnavailableError("this build has no CUDA backend");
}

bool BuiltWithCuda() { return false; }

}  // namespace tandem
