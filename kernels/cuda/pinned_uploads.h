#ifndef TANDEM_KERNELS_CUDA_PINNED_UPLOADS_H_
#define TANDEM_KERNELS_CUDA_PINNED_UPLOADS_H_

#include <array>
#include <cstddef>

#include "absl/types/span.h"
#include "kernels/cuda/device.h"

namespace tandem::cuda {

// Uploads through a ring of pinned memory, so that the host never waits for the stream: copies from
// other memory may do so above 64 KB. A slot is filled again only when its copy has ended.
// Thread-compatible.
class PinnedUploads {
 public:
  static constexpr size_t kSlotBytes = size_t{1} << 20;
  static constexpr int kNumSlots = 4;

  explicit PinnedUploads(Stream stream) : stream_(stream) {}
  ~PinnedUploads();
  PinnedUploads(const PinnedUploads&) = delete;
  PinnedUploads& operator=(const PinnedUploads&) = delete;

  // Copies `host` to the device in stream order. The caller may change it at once.
  Error Upload(absl::Span<const std::byte> host, void* device);

 private:
  struct Slot {
    Event copied = nullptr;
    bool is_copying = false;
  };
  Error Open();

  const Stream stream_;
  bool is_open_ = false;
  bool has_failed_ = false;  // no pinned memory: uploads come from the caller's
  std::byte* memory_ = nullptr;
  std::array<Slot, kNumSlots> slots_;
  int next_ = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PINNED_UPLOADS_H_
