#ifndef TANDEM_BASE_SPARE_BUFFERS_H_
#define TANDEM_BASE_SPARE_BUFFERS_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tandem {

// Keeps the buffers of dropped pages for new ones, because clearing new memory takes as long as
// copying into it. Thread-safe.
class SpareBuffers {
 public:
  // Returns a buffer of this size. Its contents are unspecified.
  std::vector<std::byte> Take(size_t size) {
    {
      absl::MutexLock lock(&mutex_);
      const auto fitting = std::find_if(buffers_.begin(), buffers_.end(),
                                        [&](const auto& buffer) { return buffer.size() == size; });
      if (fitting != buffers_.end()) {
        std::vector<std::byte> buffer = std::move(*fitting);
        buffers_.erase(fitting);
        num_bytes_ -= size;
        return buffer;
      }
    }
    return std::vector<std::byte>(size);
  }

  // Keeps a buffer. Drops the oldest ones if there are too many.
  void Give(std::vector<std::byte> buffer) {
    absl::MutexLock lock(&mutex_);
    num_bytes_ += buffer.size();
    buffers_.push_front(std::move(buffer));
    while (num_bytes_ > kMaxBytes || buffers_.size() > kMaxBuffers) {
      num_bytes_ -= buffers_.back().size();
      buffers_.pop_back();
    }
  }

 private:
  static constexpr size_t kMaxBytes = size_t{16} << 20;
  static constexpr size_t kMaxBuffers = 256;

  absl::Mutex mutex_;
  std::deque<std::vector<std::byte>> buffers_ ABSL_GUARDED_BY(mutex_);  // the newest first
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem

#endif  // TANDEM_BASE_SPARE_BUFFERS_H_
