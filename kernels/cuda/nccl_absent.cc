// Stands in for nccl.cc in builds without NCCL.
#include "kernels/cuda/nccl.h"

namespace tandem::cuda {

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Open() {
  return absl::UnavailableError("this build does not include NCCL");
}

}  // namespace tandem::cuda
