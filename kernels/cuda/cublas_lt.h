// cuBLASLt as a shared library of the machine's, for products of bf16 whose sums are f32. It is
// half a gigabyte, so it is loaded when a device is opened, and the program runs without it.
#ifndef TANDEM_KERNELS_CUDA_CUBLAS_LT_H_
#define TANDEM_KERNELS_CUDA_CUBLAS_LT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cublas_entries.h"

namespace tandem::cuda {

// sums [rows, outputs] = x [rows, inputs] * transpose(weight [outputs, inputs]), each row-major
// without gaps.
struct LtShape {
  int rows = 0;
  int outputs = 0;
  int inputs = 0;
};

class CublasLt {
 public:
  // UNAVAILABLE if the library cannot be loaded, or is of a version whose interface is not known.
  // The environment's TANDEM_CUBLAS_LT names its file, or is "none".
  static absl::StatusOr<std::unique_ptr<CublasLt>> Open();
  virtual ~CublasLt() = default;

  virtual const std::string& version() const = 0;  // "13.1.0"
  // What computes the product within the workspace, best first: with each sum in one sequence, or
  // `in_any_order`.
  virtual absl::StatusOr<std::vector<LtAlgorithm>> AlgorithmsFor(const LtShape& shape,
                                                                 size_t workspace_bytes,
                                                                 bool in_any_order) = 0;
  // Enqueues it on `stream`, which is the toolkit's.
  virtual absl::Status Multiply(const LtShape& shape, const LtAlgorithm& algorithm, const void* x,
                                const void* weight, float* sums, void* workspace,
                                size_t workspace_bytes, void* stream) = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_LT_H_
