#ifndef TANDEM_KERNELS_CUDA_PREPARED_ROWS_H_
#define TANDEM_KERNELS_CUDA_PREPARED_ROWS_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/operations.h"

namespace tandem::cuda {

// The memory of rows of products, and which matrices it holds: operations that are told which
// product reads their result next (NextProduct) write it there.
//
// There are two places, so that a product can read one while it writes the other. The choice
// between them depends only on the calls since the last Forget. Thread-compatible.
class PreparedRows {
 public:
  // Returns memory of at least this size in the buffer, or null after a failure.
  using Reserve = std::function<void*(Buffer* buffer, size_t bytes)>;
  explicit PreparedRows(Reserve reserve) : reserve_(std::move(reserve)) {}

  // The rows that a product reads.
  struct Rows {
    void* data = nullptr;      // null: there is none
    float* squares = nullptr;  // of the norm
  };
  // Returns the rows of `x` for a product with weights of bf16 and these weights of a norm, if an
  // operation has written them. They stay until Done is called.
  Rows Find(const ConstMatrixView& x, const float* norm);
  // Returns memory for rows that are packed for one product. It stays until Done is called.
  //   num_squares: of all rows
  Rows Scratch(size_t bytes, size_t num_squares);
  // The product has been enqueued.
  void Done() { read_ = kNone; }

  // Returns memory for `out` as the next product reads it, or no memory if it cannot read it or
  // none is free.
  //   is_only: `out` itself is not written
  NextRows Make(const MatrixView& out, const NextProduct& next, bool is_only);

  // Forgets rows of matrices, or of norms, that overlap this memory, which will be written.
  void Overwrite(const void* begin, size_t bytes);
  // Whether this memory overlaps a matrix that itself has not been written.
  bool IsUnwritten(const void* begin, size_t bytes) const;
  // Forgets all rows. They are also forgotten before work is recorded or replayed.
  void Forget();
  void FreeMemory();

 private:
  static constexpr int kPlaces = 2;
  static constexpr int kNone = -1;
  struct Place {
    ConstMatrixView x{};  // without data: unused
    const float* norm = nullptr;
    bool is_only = false;
    bool was_read = false;
    Buffer rows, squares;

    bool is_needed() const { return x.data != nullptr && is_only && !was_read; }
  };

  // Returns a place that is neither read now nor needed, or kNone.
  int FreePlace() const;
  // Returns no memory after a failure.
  Rows ReserveIn(Place* place, size_t bytes, size_t num_squares);

  const Reserve reserve_;
  Place places_[kPlaces];
  int read_ = kNone;  // the place that the current product reads
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PREPARED_ROWS_H_
