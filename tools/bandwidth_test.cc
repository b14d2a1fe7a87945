#include "tools/bandwidth.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Bandwidth, SumsEveryWordOnce) {
  std::vector<uint64_t> words(64 * 9);
  std::iota(words.begin(), words.end(), uint64_t{1});
  EXPECT_EQ(SumWords(words.data(), 64 * 9), uint64_t{64 * 9} * (64 * 9 + 1) / 2);
  EXPECT_EQ(SumWords(words.data(), 0), 0u);
  for (uint64_t& word : words) {
    const uint64_t before = SumWords(words.data(), 64 * 9);
    ++word;
    ASSERT_EQ(SumWords(words.data(), 64 * 9), before + 1);
  }
}

TEST(Bandwidth, ReadsWholeHugePagesWithEveryThread) {
  ThreadPool pool(3);
  const auto bandwidth = MeasureReadBandwidth((2 << 20) + 1, &pool);
  ASSERT_TRUE(bandwidth.ok());
  EXPECT_GT(bandwidth->bytes_per_second, 0.0);
  EXPECT_EQ(bandwidth->buffer_bytes, 4 << 20);
  EXPECT_EQ(bandwidth->num_threads, 3);
}

TEST(Bandwidth, TooMuchMemoryIsAnError) {
  ThreadPool pool(1);
  EXPECT_EQ(MeasureReadBandwidth(int64_t{1} << 50, &pool).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Bandwidth, MemoryBufferIsLargerThanTheCaches) {
  EXPECT_GE(MemoryBufferBytes(), 512 << 20);
  EXPECT_LE(LastLevelCacheBytes(), MemoryBufferBytes());
}

}  // namespace
}  // namespace tandem
