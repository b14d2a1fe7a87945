#ifndef TANDEM_KERNELS_CUDA_CUBLAS_PRODUCTS_H_
#define TANDEM_KERNELS_CUDA_CUBLAS_PRODUCTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/device.h"

namespace tandem::cuda {

// Products of many rows with weights of bf16, by cuBLASLt where it has the bits of our kernels.
//
// The first weight of a shape starts a check: for each multiple of 128 rows the library's
// algorithms run on random numbers, and the first whose sums equal ours is kept. Products have rows
// of padding after the last one, so that only checked plans run. The library needs plain copies of
// weights. These give way: an allocation that does not fit releases all of them, and our kernels go
// on.
class CublasProducts {
 public:
  // `backend` must outlive this. The library is looked for when it is first of use.
  CublasProducts(Backend* backend, Stream stream, int num_sms)
      : backend_(*backend), stream_(stream), num_sms_(num_sms) {}

  // Copies a weight that was packed, if its shape is accepted. May wait.
  void Add(const void* packed, int num_tiles, int inputs);
  void Remove(const void* packed) { copies_.extract(packed); }
  // Gives all memory back, for good. False if there is none to give.
  bool Release();
  int64_t copy_bytes() const;

  bool Has(const TileProductTask& product) const;
  // REQUIRES: Has(product). Neither waits nor allocates.
  absl::Status Multiply(const TileProductTask& product);

  // sums = x * transpose(weight), plain rows of bf16, by the algorithm that the library finds best,
  // whatever its bits. UNIMPLEMENTED without a library.
  absl::Status MultiplyAnyhow(const LtShape& shape, const void* x, const void* weight, float* sums);

  // The library's version and the verdict on each shape, for people; nothing before the first use.
  std::vector<std::string> Report() const;

  static constexpr int kRowsUnit = 128;
  static constexpr int kMaxRows = 1024;
  static constexpr size_t kMaxSumBytes = size_t{128} << 20;    // fewer rows of wide products
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for Hopper

 private:
  struct Plan {
    LtShape shape;
    LtAlgorithm algorithm;
  };
  // On a shape of weights: the plans that were accepted, by rows, or why there is none.
  struct Verdict {
    std::vector<Plan> plans;
    std::string refusal = "";
    int num_refused = 0;  // algorithms
  };
  using WeightShape = std::pair<int, int>;  // tiles and steps

  bool Open();  // whether there is a library
  static std::string Line(const WeightShape& shape, const Verdict& verdict);
  absl::Status Check(Error error, absl::string_view what) const;
  absl::Status Reserve(Buffer* scratch, size_t bytes);
  absl::Status ReserveScratch(const LtShape& most);
  absl::StatusOr<Verdict> Compare(const WeightShape& shape);
  absl::Status Multiply(const Plan& plan, const void* weight);
  absl::Status Unpack(const void* packed, const WeightShape& shape, void* out);

  Backend& backend_;
  Stream stream_;
  const int num_sms_;
  std::unique_ptr<CublasLt> library_;
  std::string why_none_ = "";  // said once there is none to use
  bool is_adding_ = false;
  std::map<WeightShape, Verdict> verdicts_;
  std::map<const void*, Buffer> copies_;  // by the packed weight
  Buffer rows_, factors_, sums_, workspace_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_PRODUCTS_H_
