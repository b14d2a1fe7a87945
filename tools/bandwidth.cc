#include "tools/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kWordsPerStep = 64;  // eight cache lines
constexpr int kWordsPerLine = 8;
// Minimum number and duration of passes over the buffer, so that a small buffer is measured for
// long enough.
constexpr int kMinPasses = 8;
constexpr std::chrono::milliseconds kMinTime{400};

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

// Owns a mapping, in huge pages where the system has them. Not movable.
class ReadBuffer::Mapping {
 public:
  explicit Mapping(int64_t bytes) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
    // One page more, so that the buffer can begin on a page boundary.
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

  uint64_t* data() const { return data_; }  // null if the allocation failed
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  int64_t mapped_bytes_;
  void* mapped_;
  uint64_t* data_ = nullptr;
};

uint64_t SumWords(const uint64_t* words, int64_t count) {
  TANDEM_CHECK(count % kWordsPerStep == 0);
  // Sixteen independent sums, which compilers vectorize, so that additions are never the
  // bottleneck.
  constexpr int kChains = 16;
  // In words. To hide memory latency at this bandwidth, each thread needs about 2 KiB in flight;
  // the hardware prefetcher alone reads less than that ahead.
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

absl::StatusOr<std::unique_ptr<ReadBuffer>> ReadBuffer::Create(int64_t bytes, int num_parts,
                                                               ThreadPool* pool) {
  TANDEM_CHECK(num_parts >= 1);
  auto mapping = std::make_unique<Mapping>(bytes);
  if (mapping->data() == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes to measure the bandwidth with"));
  }
  return std::unique_ptr<ReadBuffer>(new ReadBuffer(std::move(mapping), num_parts, pool));
}

ReadBuffer::ReadBuffer(std::unique_ptr<Mapping> mapping, int num_parts, ThreadPool* pool)
    : mapping_(std::move(mapping)),
      num_parts_(num_parts),
      pool_(pool),
      sums_(pool->num_threads() * kWordsPerLine) {
  // The system places a page near the thread that first touches it, so the same thread must read
  // it.
  pool_->Run([&](int thread) {
    for (int part = 0; part < num_parts_; ++part) {
      const Share words = WordsOf(part, thread);
      std::fill(mapping_->data() + words.begin, mapping_->data() + words.end, 1);
    }
  });
}

ReadBuffer::~ReadBuffer() {
  // Use the sums, so that the compiler cannot drop the reads. Every word is 1, and each part is a
  // multiple of kWordsPerStep words.
  uint64_t total = 0;
  for (const uint64_t sum : sums_) total += sum;
  TANDEM_CHECK(total % kWordsPerStep == 0);
}

int64_t ReadBuffer::bytes() const { return mapping_->bytes(); }

Share ReadBuffer::WordsOf(int part, int thread) const {
  const int64_t num_steps =
      mapping_->bytes() / static_cast<int64_t>(sizeof(uint64_t)) / kWordsPerStep;
  const Share steps = ShareOf(num_steps, num_parts_, part);
  const Share mine = ShareOf(steps.end - steps.begin, pool_->num_threads(), thread);
  return {(steps.begin + mine.begin) * kWordsPerStep, (steps.begin + mine.end) * kWordsPerStep};
}

double ReadBuffer::ReadPart() {
  using Clock = std::chrono::steady_clock;
  const int part = next_part_;
  next_part_ = (part + 1) % num_parts_;
  const Clock::time_point start = Clock::now();
  pool_->Run([&](int thread) {
    const Share words = WordsOf(part, thread);
    sums_[thread * kWordsPerLine] +=
        SumWords(mapping_->data() + words.begin, words.end - words.begin);
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const int64_t num_words = WordsOf(part, pool_->num_threads() - 1).end - WordsOf(part, 0).begin;
  return static_cast<double>(num_words * sizeof(uint64_t)) / seconds;
}

absl::StatusOr<ReadBandwidth> MeasureReadBandwidth(int64_t bytes, ThreadPool* pool) {
  using Clock = std::chrono::steady_clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadBuffer> buffer, ReadBuffer::Create(bytes, 1, pool));
  double best = 0.0;
  const Clock::time_point first = Clock::now();
  for (int pass = 0; pass < kMinPasses || Clock::now() - first < kMinTime; ++pass) {
    best = std::max(best, buffer->ReadPart());
  }
  return ReadBandwidth{best, buffer->bytes(), pool->num_threads()};
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
  // On a busy virtual machine of two cores with a cache of 260 MiB, filling 4 GiB took 15 s of
  // processor time, and reading 1 GiB took as long for each byte as reading 4.
  constexpr int64_t kMost = int64_t{1} << 30;
  constexpr int64_t kCaches = 16;  // at most 6 % of the reads hit a cache of up to 64 MiB
  return std::clamp(kCaches * LastLevelCacheBytes(), kLeast, kMost);
}

}  // namespace tandem
