// Stands in for nccl.cc in builds without NCCL.
#include "kernels/cuda/nccl.h"

namespace tandem::cuda {

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Open() {
  return absl::UnavailableError("this build does without NCCL");
}

}  // namespace tandem::cuda
