#include "tools/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kWordsPerStep = 64;  // eight cache lines
// Passes over the buffer: at least so many, and for at least so long, so that a small buffer is
// not judged by a moment.
constexpr int kLeastPasses = 8;
constexpr std::chrono::milliseconds kLeastTime{400};

// Memory in huge pages where the system has them. Move-less owner of a mapping.
class Mapping {
 public:
  explicit Mapping(int64_t bytes) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
    // One page more, so that the buffer can begin at a page's border.
    mapped_bytes_ = bytes_ + kHugePage;
    mapped_ =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) return;
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    data_ = reinterpret_cast<uint64_t*>((address + kHugePage - 1) / kHugePage * kHugePage);
    madvise(data_, bytes_, MADV_HUGEPAGE);  // may fail: then pages are small
  }
  ~Mapping() {
    if (mapped_ != MAP_FAILED) munmap(mapped_, mapped_bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint64_t* data() const { return data_; }  // null if there is not that much memory
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  int64_t mapped_bytes_;
  void* mapped_;
  uint64_t* data_ = nullptr;
};

int64_t ReadSize(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t count = 0;
  if (!(file >> text) || text.empty()) return 0;
  const int shift = text.back() == 'K' ? 10 : text.back() == 'M' ? 20 : 0;
  if (shift > 0) text.pop_back();
  return absl::SimpleAtoi(text, &count) ? count << shift : 0;
}

}  // namespace

uint64_t SumWords(const uint64_t* words, int64_t count) {
  TANDEM_CHECK(count % kWordsPerStep == 0);
  // Sixteen chains, which compilers turn into vectors: additions are never what is waited for.
  constexpr int kChains = 16;
  // Memory's latency at this speed covers some 2 KiB per thread; the hardware alone asks for less
  // than that ahead.
  constexpr int64_t kAhead = 512;
  uint64_t sums[kChains] = {};
  for (int64_t i = 0; i < count; i += kWordsPerStep) {
    for (int64_t line = 0; line < kWordsPerStep; line += 8) {
      __builtin_prefetch(words + i + line + kAhead);
    }
    for (int64_t j = 0; j < kWordsPerStep; j += kChains) {
      for (int chain = 0; chain < kChains; ++chain) sums[chain] += words[i + j + chain];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

absl::StatusOr<ReadBandwidth> MeasureReadBandwidth(int64_t bytes, ThreadPool* pool) {
  using Clock = std::chrono::steady_clock;
  const Mapping buffer(bytes);
  if (buffer.data() == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes to measure the bandwidth with"));
  }
  const int num_threads = pool->num_threads();
  const int64_t num_words = buffer.bytes() / static_cast<int64_t>(sizeof(uint64_t));
  const auto share_of = [&](int thread) {
    const Share steps = ShareOf(num_words / kWordsPerStep, num_threads, thread);
    return Share{steps.begin * kWordsPerStep, steps.end * kWordsPerStep};
  };
  // Pages are given to the thread that first touches them, and read by the same.
  pool->Run([&](int thread) {
    const Share share = share_of(thread);
    std::fill(buffer.data() + share.begin, buffer.data() + share.end, 1);
  });
  std::vector<uint64_t> sums(num_threads * 8);  // a cache line each
  double best = 0.0;
  const Clock::time_point first = Clock::now();
  for (int pass = 0; pass < kLeastPasses || Clock::now() - first < kLeastTime; ++pass) {
    const Clock::time_point start = Clock::now();
    pool->Run([&](int thread) {
      const Share share = share_of(thread);
      sums[thread * 8] += SumWords(buffer.data() + share.begin, share.end - share.begin);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(buffer.bytes()) / seconds);
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  TANDEM_CHECK(total % num_words == 0);  // so that no compiler can leave the reading out
  return ReadBandwidth{best, buffer.bytes(), num_threads};
}

int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    largest = std::max(largest, ReadSize(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index",
                                                      index, "/size")));
  }
  return largest;
}

int64_t MemoryBufferBytes() {
  constexpr int64_t kLeast = 512 << 20;
  constexpr int64_t kMost = int64_t{4} << 30;
  constexpr int64_t kCaches = 16;  // at most 6 % of the reads find the cache
  return std::clamp(kCaches * LastLevelCacheBytes(), kLeast, kMost);
}

}  // namespace tandem
