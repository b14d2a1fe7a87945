// Stands in for cublas_products.cc in builds whose products are all our own.
#include "kernels/cuda/cublas_products.h"

namespace tandem::cuda {

void CublasProducts::Add(const void*, int, int) {}
void CublasProducts::Remove(const void*) {}
bool CublasProducts::Release() { return false; }
int64_t CublasProducts::copy_bytes() const { return 0; }
int64_t CublasProducts::wanted_bytes() const { return 0; }
void CublasProducts::MakeCopy(const TileProductTask&) {}
bool CublasProducts::Has(const TileProductTask&) const { return false; }
absl::Status CublasProducts::Multiply(const TileProductTask&) {
  return absl::UnimplementedError("this build has no products by cuBLASLt");
}
std::vector<std::string> CublasProducts::Report() const { return {}; }

}  // namespace tandem::cuda
