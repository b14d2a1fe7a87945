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
#include "kernels/cuda/cublas_reference.h"
#include "kernels/cuda/device.h"

namespace tandem::cuda {

// Products of many rows with weights of bf16, computed by cuBLASLt where it gives the same bits as
// our kernels. Builds without TANDEM_CUBLAS_PRODUCTS have cublas_products_absent.cc instead, which
// has no products.
//
// The first weight of a shape starts a check: for each multiple of 128 rows, the library's
// algorithms run on random numbers, and the first whose sums equal ours is kept. Products are
// padded with rows to such a multiple, so that only checked plans run. The library needs plain
// copies of weights. The first product of many rows with a weight makes its copy, so that weights
// which prompts do not use have none, and none is made unless those of all weights would fit. They
// are dispensable: an allocation that does not fit releases all of them, and our kernels take over.
class CublasProducts {
 public:
  // `backend` must outlive this. The library is loaded when it is first needed.
  CublasProducts(Backend* backend, Stream stream, int num_sms)
      : backend_(*backend), stream_(stream), num_sms_(num_sms) {}

  // Checks the shape of a packed weight. May block.
  void Add(const void* packed, int num_tiles, int inputs);
  void Remove(const void* packed);
  // Releases all memory, for good. Returns false if there was none.
  bool Release();
  int64_t copy_bytes() const;    // of the copies that exist
  int64_t wanted_bytes() const;  // of those and the ones that products of many rows would make

  // Makes the copy of the product's weight that Has requires, if the library would compute this
  // product. May allocate, and release all memory.
  void MakeCopy(const TileProductTask& product);
  bool Has(const TileProductTask& product) const;
  // Neither blocks nor allocates.  REQUIRES: Has(product).
  absl::Status Multiply(const TileProductTask& product);

  // Returns the library's version and the verdict on each shape, for people. Empty before the first
  // use.
  std::vector<std::string> Report() const;

  static constexpr int kRowsUnit = 128;
  static constexpr int kMaxRows = 1024;
  static constexpr size_t kMaxSumBytes = size_t{128} << 20;  // limits the rows of wide products
  static constexpr size_t kWorkspaceBytes = CublasReference::kWorkspaceBytes;
  // Copies leave this much free memory to the driver and to libraries, which cannot release them.
  static constexpr int64_t kSpareBytes = int64_t{256} << 20;

 private:
  struct Plan {
    LtShape shape;
    LtAlgorithm algorithm;
  };
  // The result of checking a shape of weights: the accepted plans by rows, or why none was.
  struct Verdict {
    std::vector<Plan> plans;
    std::string refusal = "";
    int num_refused = 0;  // refused algorithms
  };
  using WeightShape = std::pair<int, int>;  // tiles and steps

  bool Open();  // returns whether the library is available
  static std::string Line(const WeightShape& shape, const Verdict& verdict);
  absl::Status Check(Error error, absl::string_view what) const;
  absl::Status Reserve(Buffer* scratch, size_t bytes);
  absl::Status ReserveScratch(const LtShape& most);
  absl::StatusOr<Verdict> Compare(const WeightShape& shape);
  // Copies some of the product's rows to `rows_`, with zeros up to `plain_rows`.
  absl::Status CopyRows(const TileProductTask& product, int first, int rows, int plain_rows);
  absl::Status Multiply(const Plan& plan, const void* weight);
  bool HasManyRows(const TileProductTask& product) const;
  void Release(std::string reason);
  void Stop(absl::string_view reason);
  absl::Status Unpack(const void* packed, const WeightShape& shape, void* out);

  Backend& backend_;
  Stream stream_;
  const int num_sms_;
  std::unique_ptr<CublasLt> library_;
  std::string unavailable_reason_ = "";  // why the library is not used
  bool is_adding_ = false;
  std::map<WeightShape, Verdict> verdicts_;
  // Both are keyed by the packed weight.
  std::map<const void*, WeightShape> weights_;  // with an accepted shape
  std::map<const void*, Buffer> copies_;
  bool fits_ = false;             // whether the copies of all weights_ do
  std::string stop_reason_ = "";  // why no more copies are made
  Buffer rows_, sums_, workspace_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUBLAS_PRODUCTS_H_
