#include "base/instant.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Instant, NeverGoesBack) {
  Instant last = Instant::Now();
  for (int i = 0; i < 1000; ++i) {
    const Instant now = Instant::Now();
    EXPECT_GE(now - last, absl::ZeroDuration());
    last = now;
  }
}

TEST(Instant, IsBetweenTheInfinitePastAndTheInfiniteFuture) {
  const Instant now = Instant::Now();
  EXPECT_LT(Instant::InfinitePast(), now);
  EXPECT_LT(now, Instant::InfiniteFuture());
  EXPECT_EQ(Instant(), Instant::InfinitePast());
  EXPECT_EQ(now - Instant::InfinitePast(), absl::InfiniteDuration());
  EXPECT_EQ((now + absl::Seconds(2)) - now, absl::Seconds(2));
  EXPECT_EQ(now + absl::InfiniteDuration(), Instant::InfiniteFuture());
}

TEST(Instant, FollowsAFakeClock) {
  const Instant before = Instant::Now();
  {
    FakeClock clock;
    const Instant start = Instant::Now();
    EXPECT_GE(start, before);
    EXPECT_EQ(Instant::Now(), start);
    clock.Advance(absl::Hours(1));
    EXPECT_EQ(Instant::Now() - start, absl::Hours(1));
    clock.Advance(-absl::Hours(2));
    EXPECT_EQ(Instant::Now() - start, -absl::Hours(1));
  }
  EXPECT_LT(Instant::Now() - before, absl::Hours(1));
}

}  // namespace
}  // namespace tandem
