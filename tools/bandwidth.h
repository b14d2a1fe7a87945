#ifndef TANDEM_TOOLS_BANDWIDTH_H_
#define TANDEM_TOOLS_BANDWIDTH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"

namespace tandem {

// How fast threads read memory, with nothing else to do: the limit of decoding.
struct ReadBandwidth {
  double bytes_per_second = 0.0;
  int64_t buffer_bytes = 0;
  int num_threads = 0;
};

// Memory in 2 MiB pages, every thread of a pool its own contiguous share of each part.
class ReadBuffer {
 public:
  // About `bytes` in `num_parts` parts. `pool` must outlive it. RESOURCE_EXHAUSTED if there is not
  // that much memory.
  static absl::StatusOr<std::unique_ptr<ReadBuffer>> Create(int64_t bytes, int num_parts,
                                                            ThreadPool* pool);
  ~ReadBuffer();
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  int64_t bytes() const;
  // Reads the next part, after the last the first again. Returns bytes per second.
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

// Sums a buffer of about `bytes` in 2 MiB pages, every thread of the pool its own contiguous share,
// over and over; the best of the passes counts, because whatever else runs only slows them.
// RESOURCE_EXHAUSTED if there is not that much memory.
absl::StatusOr<ReadBandwidth> MeasureReadBandwidth(int64_t bytes, ThreadPool* pool);

// Bytes of the last-level cache of this machine; 0 if it does not tell.
int64_t LastLevelCacheBytes();

// A buffer that no cache holds a notable part of.
int64_t MemoryBufferBytes();

// The sum of 64-bit words, wrapping. REQUIRES: `count` is a multiple of 64.
uint64_t SumWords(const uint64_t* words, int64_t count);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BANDWIDTH_H_
