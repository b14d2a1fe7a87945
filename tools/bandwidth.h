#ifndef TANDEM_TOOLS_BANDWIDTH_H_
#define TANDEM_TOOLS_BANDWIDTH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"

namespace tandem {

// How fast threads read memory when they do nothing else. This bounds the speed of decoding.
struct ReadBandwidth {
  double bytes_per_second = 0.0;
  int64_t buffer_bytes = 0;
  int num_threads = 0;
};

// A buffer in 2 MiB pages, divided into parts. Each thread of a pool reads a contiguous share of
// every part.
class ReadBuffer {
 public:
  // Allocates about `bytes` in `num_parts` parts. `pool` must outlive the result.
  // RESOURCE_EXHAUSTED if the memory cannot be allocated.
  static absl::StatusOr<std::unique_ptr<ReadBuffer>> Create(int64_t bytes, int num_parts,
                                                            ThreadPool* pool);
  ~ReadBuffer();
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  int64_t bytes() const;
  // Reads the next part, and starts over after the last. Returns bytes per second.
  double ReadPart();

 private:
  class Mapping;
  ReadBuffer(std::unique_ptr<Mapping> mapping, int num_parts, ThreadPool* pool);
  Share WordsOf(int part, int thread) const;

  std::unique_ptr<Mapping> mapping_;
  const int num_parts_;
  ThreadPool* pool_;
  int next_part_ = 0;
  std::vector<uint64_t> sums_;  // a cache line for each thread
};

// Sums a buffer of about `bytes` repeatedly, each thread of the pool a contiguous share. Returns
// the fastest pass, because other load only slows passes down. RESOURCE_EXHAUSTED if the memory
// cannot be allocated.
absl::StatusOr<ReadBandwidth> MeasureReadBandwidth(int64_t bytes, ThreadPool* pool);

// Bytes of the last-level cache of this machine; 0 if unknown.
int64_t LastLevelCacheBytes();

// The size of a buffer that is large enough that caches hold only a small part of it.
int64_t MemoryBufferBytes();

// The sum of 64-bit words, wrapping. REQUIRES: `count` is a multiple of 64.
uint64_t SumWords(const uint64_t* words, int64_t count);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BANDWIDTH_H_
