#include "kernels/cuda/cublas_reference.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::cuda {

absl::Status CublasReference::Multiply(const LtShape& shape, const void* x, const void* weight,
                                       float* sums) {
  if (library_ == nullptr) {
    absl::StatusOr<std::unique_ptr<CublasLt>> library = CublasLt::Open();
    if (!library.ok()) {
      return absl::UnimplementedError(
          absl::StrCat("cublas=none reason=\"", library.status().message(), "\""));
    }
    ASSIGN_OR_RETURN(workspace_, backend_.Allocate(kWorkspaceBytes));
    library_ = *std::move(library);
  }
  ASSIGN_OR_RETURN(const std::vector<LtAlgorithm> algorithms,
                   library_->AlgorithmsFor(shape, kWorkspaceBytes, true));
  if (algorithms.empty()) return absl::UnimplementedError("cuBLASLt has no algorithm");
  return library_->Multiply(shape, algorithms[0], x, weight, sums, workspace_.data(),
                            kWorkspaceBytes, StreamOfToolkit(stream_));
}

}  // namespace tandem::cuda
