#include "kernels/row_sums.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(RowSums, UnitsAreExactFromTwoToTheMinus36) {
  for (const float p : {1.0f, 0.9f, 1.0f / 3.0f, 0x1.fffffep-1f, 0x1.234568p-36f}) {
    EXPECT_EQ(std::ldexp(static_cast<double>(InUnits(p)), -60), p);
  }
  EXPECT_EQ(InUnits(0x1p-61f), 0u);
  EXPECT_EQ(InUnits(0.0f), 0u);
}

TEST(RowSums, UnitsToReachIsTheSmallestSufficientSum) {
  for (const float share : {1.0f, 0.9f, 0x1.234568p-20f, 0x1.fffffep-40f, 0x1p-100f}) {
    const uint64_t enough = UnitsToReach(share);
    EXPECT_GE(std::ldexp(static_cast<long double>(enough), -60), share);
    EXPECT_LT(std::ldexp(static_cast<long double>(enough - 1), -60), share);
  }
}

TEST(RowSums, InverseOfUnitsIsOneOverTheSum) {
  EXPECT_EQ(InverseOfUnits(InUnits(0.25f) + InUnits(0.125f)), 1.0f / 0.375f);
}

}  // namespace
}  // namespace tandem
