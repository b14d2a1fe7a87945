#include "kvcache/transfer/offered_pages.h"

#include <gtest/gtest.h>

#include "kvcache/transfer/transfer_testing.h"

namespace tandem {
namespace {

using Presence = OfferedPages::Presence;

constexpr size_t kPage = 100;

OfferedPages::Options RoomFor(size_t num_pages) {
  return {.max_bytes = num_pages * kPage, .lease = absl::Seconds(30)};
}

TEST(OfferedPages, PresenceIsThereComingOrNever) {
  const TestText text(TestPool("target"), 100, 2, kPage);
  OfferedPages offered(RoomFor(10));
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kNever);
  ASSERT_TRUE(offered.Open("a"));
  EXPECT_FALSE(offered.Open("a"));
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kComing);
  ASSERT_TRUE(Offer(&offered, "a", TestPool("target"), text, 0));
  const OfferedPages::Found found = offered.Find("a", text.refs()[0].key);
  ASSERT_EQ(found.presence, Presence::kThere);
  EXPECT_EQ(found.page->bytes, text.bytes(0));
  EXPECT_EQ(found.page->pool, TestPool("target"));
  EXPECT_EQ(offered.Find("a", text.refs()[1].key).presence, Presence::kComing);
  EXPECT_EQ(offered.Find("b", text.refs()[0].key).presence, Presence::kNever);
  offered.Complete("a");
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kThere);
  EXPECT_EQ(offered.Find("a", text.refs()[1].key).presence, Presence::kNever);
  offered.Release("a");
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kNever);
  EXPECT_FALSE(offered.Claim("a", 1));
  EXPECT_FALSE(Offer(&offered, "a", TestPool("target"), text, 0));
  EXPECT_EQ(offered.stats().bytes, 0);
  EXPECT_EQ(offered.stats().leases, 0);
  EXPECT_EQ(offered.stats().leases_expired, 0);
  EXPECT_TRUE(offered.Open("a"));
}

TEST(OfferedPages, ExpireWithTheirCompleteLease) {
  FakeClock clock;
  const TestText text(TestPool("target"), 100, 1, kPage);
  OfferedPages offered(RoomFor(10));
  ASSERT_TRUE(offered.Open("a"));
  ASSERT_TRUE(Offer(&offered, "a", TestPool("target"), text, 0));
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(offered.stats().leases, 1);  // an incomplete lease does not expire
  offered.Complete("a");
  clock.Advance(absl::Seconds(29));
  EXPECT_EQ(offered.stats().leases, 1);
  EXPECT_TRUE(offered.Claim("a", 1));
  clock.Advance(absl::Seconds(29));
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kThere);
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kNever);
  EXPECT_FALSE(offered.Claim("a", 1));
  EXPECT_EQ(offered.stats().leases, 0);
  EXPECT_EQ(offered.stats().bytes, 0);
  EXPECT_EQ(offered.stats().leases_expired, 1);
}

TEST(OfferedPages, EvictTheOldestOtherLeaseForMemory) {
  const TestText text(TestPool("target"), 100, 4, kPage);
  OfferedPages offered(RoomFor(3));
  for (const char* lease : {"a", "b", "c"}) {
    ASSERT_TRUE(offered.Open(lease));
    ASSERT_TRUE(Offer(&offered, lease, TestPool("target"), text, 0));
  }
  ASSERT_TRUE(Offer(&offered, "a", TestPool("target"), text, 1));  // b is the oldest of the others
  EXPECT_EQ(offered.Find("a", text.refs()[0].key).presence, Presence::kThere);
  EXPECT_EQ(offered.Find("b", text.refs()[0].key).presence, Presence::kNever);
  EXPECT_EQ(offered.stats().leases_evicted, 1);
  ASSERT_TRUE(Offer(&offered, "a", TestPool("target"), text, 2));
  EXPECT_EQ(offered.stats().leases, 1);
  EXPECT_FALSE(Offer(&offered, "a", TestPool("target"), text, 3));
  EXPECT_EQ(offered.stats().pages_dropped, 1);
  EXPECT_EQ(offered.stats().leases_evicted, 2);
  EXPECT_EQ(offered.stats().bytes, int64_t{3 * kPage});
}

TEST(OfferedPages, PageInFlightOutlivesItsLease) {
  const TestText text(TestPool("target"), 100, 1, kPage);
  OfferedPages offered(RoomFor(1));
  ASSERT_TRUE(offered.Open("a"));
  ASSERT_TRUE(Offer(&offered, "a", TestPool("target"), text, 0));
  const auto page = offered.Find("a", text.refs()[0].key).page;
  offered.Release("a");
  EXPECT_EQ(page->bytes, text.bytes(0));
}

TEST(OfferedPages, CountAPageAddedTwiceOnce) {
  const TestText text(TestPool("target"), 100, 1, kPage);
  OfferedPages offered(RoomFor(2));
  ASSERT_TRUE(offered.Open("a"));
  EXPECT_TRUE(Offer(&offered, "a", TestPool("target"), text, 0));
  EXPECT_TRUE(Offer(&offered, "a", TestPool("target"), text, 0));
  EXPECT_EQ(offered.stats().bytes, int64_t{kPage});
}

TEST(OfferedPages, CallOnChangeAfterEachChange) {
  const TestText text(TestPool("target"), 100, 1, kPage);
  OfferedPages offered(RoomFor(2));
  int num_calls = 0;
  offered.set_on_change([&] { ++num_calls; });
  offered.Open("a");
  Offer(&offered, "a", TestPool("target"), text, 0);
  EXPECT_EQ(num_calls, 1);
  offered.Complete("a");
  EXPECT_EQ(num_calls, 2);
  offered.Release("a");
  EXPECT_EQ(num_calls, 3);
  offered.set_on_change(nullptr);
  offered.Open("a");
  offered.Complete("a");
  EXPECT_EQ(num_calls, 3);
}

}  // namespace
}  // namespace tandem
