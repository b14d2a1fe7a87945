// Copies of whole pages of a cache. Both g++ and nvcc compile this header.
#ifndef TANDEM_KERNELS_CUDA_KV_PAGES_H_
#define TANDEM_KERNELS_CUDA_KV_PAGES_H_

#include <cstdint>

#include "kernels/cuda/operations.h"
#include "kernels/paged_kv.h"

namespace tandem::cuda {

// The most pages of one launch. They are part of the task, so that nothing is uploaded for it.
inline constexpr int kPagesPerLaunch = 64;

struct CopyPagesTask {
  enum class Kind { kToBuffer, kFromBuffer, kWithin };
  KvPages cache;
  Kind kind = Kind::kWithin;
  uint32_t* buffer = nullptr;  // [num_pages, cache.page_words()], perhaps in pinned host memory
  int num_pages = 0;
  int32_t pages[kPagesPerLaunch] = {};    // of the cache
  int32_t targets[kPagesPerLaunch] = {};  // of kWithin: the pages that are written
};
Error Launch(const CopyPagesTask& task, Stream stream);

// A thread has kPageUnits loads of up to 16 bytes in flight. 32 blocks of a page then have 512 KB,
// which covers the time that a bus takes.
inline constexpr int kPageThreads = 256;
inline constexpr int kPageUnits = 4;
inline constexpr int kMaxPageBlocks = 32;
inline constexpr LaunchShape CopyPagesShape(const CopyPagesTask& task) {
  constexpr int64_t kWords = int64_t{kPageThreads} * kPageUnits * 4;
  const int64_t blocks = (task.cache.page_words() + kWords - 1) / kWords;
  return {.x = static_cast<int>(blocks < kMaxPageBlocks ? blocks : kMaxPageBlocks),
          .y = task.num_pages,
          .z = 1,
          .shared_bytes = 0};
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_KV_PAGES_H_
