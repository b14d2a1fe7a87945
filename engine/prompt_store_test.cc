#include "engine/prompt_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kPageTokens = 16;

// A disk that delivers the first page after `latency`, then one every `per_page`.
struct Disk {
  absl::Duration latency;
  absl::Duration per_page;
  int NumArrived(absl::Duration time, int num_tokens) const {
    if (time < latency) return 0;
    return std::min<int64_t>((1 + (time - latency) / per_page) * kPageTokens, num_tokens);
  }
};

// Returns when a prompt of `num_tokens` tokens has been read, if it checks every `step` whether
// waiting still pays.
absl::Duration TimeToRead(const Disk& disk, int num_tokens, double tokens_per_second,
                          absl::Duration step, double most_delay) {
  absl::Duration time;
  int num_arrived = 0;
  do {
    num_arrived = disk.NumArrived(time, num_tokens);
    if (num_arrived == num_tokens) return time;
    time += step;
  } while (ShouldKeepWaiting(time, num_arrived, num_tokens, tokens_per_second, most_delay));
  return time + absl::Seconds((num_tokens - num_arrived) / tokens_per_second);
}

// Row 184 of the bug catalogue.
TEST(FetchPace, DelaysAPromptByAtMostItsShareWhateverTheDisk) {
  constexpr double kSpeed = 2000.0;
  constexpr int kTokens = 4000;
  const absl::Duration computing = absl::Seconds(kTokens / kSpeed);
  const absl::Duration step = absl::Milliseconds(1);
  for (const double share : {kMaxStoreDelay, kMaxTransferDelay})
    for (const int latency_ms : {0, 1, 50, 99, 101, 500, 1900, 5000, 1000000}) {
      for (const int page_us : {10, 1000, 4000, 7900, 8000, 8100, 12000, 1000000}) {
        const Disk disk = {absl::Milliseconds(latency_ms), absl::Microseconds(page_us)};
        const absl::Duration time = TimeToRead(disk, kTokens, kSpeed, step, share);
        SCOPED_TRACE(
            absl::StrCat("share ", share, " latency ", latency_ms, " ms, page ", page_us, " us"));
        EXPECT_LE(time, (1 + share) * computing + step);
        // If the disk is faster than computing, all pages are waited for.
        const absl::Duration reading = disk.latency + kTokens / kPageTokens * disk.per_page;
        const bool is_soon = disk.latency < share * computing;
        if (is_soon && reading < 0.9 * computing) {
          EXPECT_LE(time, reading + step);
        }
      }
    }
}

TEST(FetchPace, DoesNotWaitIfTheSpeedIsUnknown) {
  EXPECT_FALSE(ShouldKeepWaiting(absl::ZeroDuration(), 0, 1000, 0.0, kMaxStoreDelay));
  EXPECT_TRUE(ShouldKeepWaiting(absl::ZeroDuration(), 0, 1000, 1.0, kMaxStoreDelay));
}

TEST(ReadingSpeed, IsTheBestRecentSpeed) {
  ReadingSpeed speed;
  EXPECT_EQ(speed.tokens_per_second(), 0.0);
  speed.Observe(3, absl::Seconds(1));  // too few tokens
  speed.Observe(100, absl::ZeroDuration());
  EXPECT_EQ(speed.tokens_per_second(), 0.0);
  speed.Observe(256, absl::Seconds(1));
  EXPECT_EQ(speed.tokens_per_second(), 256.0);
  speed.Observe(512, absl::Seconds(1));
  EXPECT_EQ(speed.tokens_per_second(), 512.0);
  speed.Observe(256, absl::Seconds(1));  // a slower pass
  EXPECT_NEAR(speed.tokens_per_second(), 486.4, 0.1);
  for (int i = 0; i < 100; ++i) speed.Observe(256, absl::Seconds(1));
  EXPECT_NEAR(speed.tokens_per_second(), 256.0, 1.0);
  EXPECT_EQ(ReadingSpeed(7.0).tokens_per_second(), 7.0);
}

}  // namespace
}  // namespace tandem
