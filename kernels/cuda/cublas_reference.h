#ifndef TANDEM_KERNELS_CUDA_CUBLAS_REFERENCE_H_
#define TANDEM_KERNELS_CUDA_CUBLAS_REFERENCE_H_

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/device.h"

namespace tandem::cuda {

// Products by cuBLASLt with any bits, which benchmarks compare ours with.
class CublasReference {
 public:
  // `backend` must outlive this. The library is loaded when it is first needed.
  CublasReference(Backend* backend, Stream stream) : backend_(*backend), stream_(stream) {}

  // sums = x * transpose(weight), with plain rows of bf16, by the algorithm that the library
  // considers best. Returns UNIMPLEMENTED without the library.
  absl::Status Multiply(const LtShape& shape, const void* x, const void* weight, float* sums);

  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for Hopper

 private:
  Backend& backend_;
  Stream stream_;
  std::unique_ptr<CublasLt> library_;
  Buffer workspace_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_REFERENCE_H_
