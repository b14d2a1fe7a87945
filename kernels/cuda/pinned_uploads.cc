#include "kernels/cuda/pinned_uploads.h"

#include <algorithm>
#include <cstring>

namespace tandem::cuda {

PinnedUploads::~PinnedUploads() {
  for (Slot& slot : slots_) {
    if (slot.is_copying) (void)Wait(slot.copied, stream_);
    if (slot.copied != nullptr) (void)EndEvent(slot.copied, stream_);
  }
  if (memory_ != nullptr) (void)FreePinned(stream_, memory_);
}

Error PinnedUploads::Open() {
  is_open_ = true;
  void* memory = nullptr;
  Error error = AllocatePinned(stream_, kNumSlots * kSlotBytes, &memory);
  memory_ = static_cast<std::byte*>(memory);
  for (Slot& slot : slots_) {
    if (error == kNoError) error = MakeEvent(stream_, &slot.copied);
  }
  has_failed_ = error != kNoError;
  return IsOutOfMemory(error) ? kNoError : error;
}

Error PinnedUploads::Upload(absl::Span<const std::byte> host, void* device) {
  if (!is_open_) {
    if (const Error error = Open(); error != kNoError) return error;
  }
  if (has_failed_) return CopyIn(host.data(), device, host.size(), stream_);
  for (size_t at = 0; at < host.size(); at += kSlotBytes) {
    const size_t bytes = std::min(kSlotBytes, host.size() - at);
    std::byte* const pinned = memory_ + next_ * kSlotBytes;
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kNumSlots;
    Error error = slot.is_copying ? Wait(slot.copied, stream_) : kNoError;
    if (error != kNoError) return error;
    std::memcpy(pinned, host.data() + at, bytes);
    error = CopyIn(pinned, static_cast<std::byte*>(device) + at, bytes, stream_);
    if (error == kNoError) error = Mark(slot.copied, stream_);
    if (error != kNoError) return error;
    slot.is_copying = true;
  }
  return kNoError;
}

}  // namespace tandem::cuda
