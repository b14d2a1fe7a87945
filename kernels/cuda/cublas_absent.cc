// Stands in for cublas_lt.cc in builds without cuBLASLt.
#include "kernels/cuda/cublas_lt.h"

namespace tandem::cuda {

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open() {
  return absl::UnavailableError("this build does not include cuBLASLt");
}

}  // namespace tandem::cuda
