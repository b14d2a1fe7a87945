// cuBLASLt, for products of bf16 with sums in f32. It is half a gigabyte, so it is not linked but
// loaded from the machine when it is first needed. The program also runs without it.
#ifndef TANDEM_KERNELS_CUDA_CUBLAS_LT_H_
#define TANDEM_KERNELS_CUDA_CUBLAS_LT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cublas_entries.h"

namespace tandem::cuda {

// sums [rows, outputs] = x [rows, inputs] * transpose(weight [outputs, inputs]), all row-major
// without gaps.
struct LtShape {
  int rows = 0;
  int outputs = 0;
  int inputs = 0;
};

class CublasLt {
 public:
  // Returns UNAVAILABLE if the library cannot be loaded, or its version has an unknown interface.
  // The environment variable TANDEM_CUBLAS_LT names its file, or is "none".
  static absl::StatusOr<std::unique_ptr<CublasLt>> Open();
  virtual ~CublasLt() = default;

  virtual const std::string& version() const = 0;  // "13.1.0"
  // Returns algorithms that compute the product within the workspace, best first. Each sum is
  // computed in one sequence unless `in_any_order`.
  virtual absl::StatusOr<std::vector<LtAlgorithm>> AlgorithmsFor(const LtShape& shape,
                                                                 size_t workspace_bytes,
                                                                 bool in_any_order) = 0;
  // Enqueues the product on `stream`, a stream of the toolkit.
  virtual absl::Status Multiply(const LtShape& shape, const LtAlgorithm& algorithm, const void* x,
                                const void* weight, float* sums, void* workspace,
                                size_t workspace_bytes, void* stream) = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_LT_H_
