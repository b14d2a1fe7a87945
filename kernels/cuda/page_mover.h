#ifndef TANDEM_KERNELS_CUDA_PAGE_MOVER_H_
#define TANDEM_KERNELS_CUDA_PAGE_MOVER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_errors.h"

namespace tandem::cuda {

// Moves pages of caches between a device and the host through two halves of pinned memory: a kernel
// on a stream of its own copies the pages of one half while the host copies those of the other.
// Calls of the runtime: some for a half, whatever the number of pieces of a page.
// Thread-compatible.
class PageMover {
 public:
  // The size of a half, or one page if that is larger.
  static constexpr size_t kHalfBytes = size_t{16} << 20;

  // Pages are read after, and written between, the work that is enqueued on `main`. Both must
  // outlive this.
  PageMover(Stream main, DeviceErrors* errors) : main_(main), errors_(*errors) {}
  ~PageMover();
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // Makes the stream and the memory for pages of this size, unless they exist. RESOURCE_EXHAUSTED
  // if there is not enough pinned memory.
  absl::Status Open(size_t page_bytes);
  // As Backend::ReadPages and WritePages.  REQUIRES: Open for the size of these pages was OK.
  absl::Status Read(const KvPages& cache, absl::Span<const int32_t> pages,
                    absl::FunctionRef<bool(int index, Backend::CopyPage copy)> take);
  absl::Status Write(absl::Span<const absl::Span<const std::byte>> from,
                     absl::Span<const int32_t> pages, const KvPages& cache);

 private:
  struct Half {
    std::byte* data = nullptr;
    Event moved = nullptr;  // the end of the latest kernel that uses `data`
    bool is_moving = false;
  };

  absl::Status FollowMain();
  absl::Status Move(const KvPages& cache, absl::Span<const int32_t> pages, bool writes, Half* half);
  absl::Status Await(Half* half);
  absl::Status StatusOf(Error error) {
    return error == kNoError ? absl::OkStatus() : errors_.StatusOf(error, "moving pages");
  }
  void FreeHalves();

  const Stream main_;
  DeviceErrors& errors_;
  Stream own_ = nullptr;
  Event enqueued_ = nullptr;  // on main_
  std::array<Half, 2> halves_;
  size_t half_bytes_ = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PAGE_MOVER_H_
