#include "tools/spread.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Spread, IsTheMedianBetweenTheExtremes) {
  const Spread odd = SpreadOf({3, 1, 7});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 7);
  EXPECT_EQ(SpreadOf({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(SpreadOf({4}).low, 4);
}

}  // namespace
}  // namespace tandem
