#include "draft/policy/cost_curve.h"

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr double kWeight = 0.1;

TEST(CostCurve, BelievesItsSlopeBeforeAnythingIsMeasured) {
  const CostCurve curve(0.1);
  EXPECT_DOUBLE_EQ(curve.At(1), 1.0);
  EXPECT_DOUBLE_EQ(curve.At(11), 2.0);
  EXPECT_FALSE(curve.is_measured(1));
}

TEST(CostCurve, DrawsAStraightLineBetweenMeasuredSizes) {
  CostCurve curve(0.1);
  curve.Add(1, 2.0, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 2.0);
  EXPECT_DOUBLE_EQ(curve.At(6), 3.0);  // its slope, of the cost of one
  curve.Add(5, 2.4, kWeight);
  EXPECT_TRUE(curve.is_measured(5));
  EXPECT_FALSE(curve.is_measured(3));
  EXPECT_NEAR(curve.At(3), 2.2, 1e-12);
  EXPECT_NEAR(curve.At(6), 2.6, 1e-12);  // 0.2 a row, steeper than measured so far
  curve.Add(7, 4.4, kWeight);
  EXPECT_NEAR(curve.At(9), 5.2, 1e-12);  // 0.4 a row from 1 to 7
}

TEST(CostCurve, NeverFalls) {
  CostCurve curve(0.1);
  for (int i = 0; i < 3; ++i) curve.Add(1, 5.0, kWeight);
  curve.Add(4, 3.0, kWeight);  // seen once: it hardly moves what was seen three times
  EXPECT_DOUBLE_EQ(curve.At(1), 4.5);
  EXPECT_DOUBLE_EQ(curve.At(2), 4.5);
  EXPECT_DOUBLE_EQ(curve.At(4), 4.5);
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    curve.Add(1 + static_cast<int>(random() % 300), 1.0 + static_cast<double>(random() % 50),
              kWeight);
    for (int size = 2; size < 400; ++size) {
      ASSERT_GE(curve.At(size), curve.At(size - 1) - 1e-9) << i << " " << size;
    }
  }
}

TEST(CostCurve, TakesTheLesserOfTheFirstTwoThenTheMeanAndThenFollows) {
  CostCurve curve(0.0);
  for (const double cost : {9.0, 2.0}) curve.Add(1, cost, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 2.0);
  curve.Add(1, 5.0, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 3.0);  // of 2, 2 and 5
  for (int i = 0; i < 200; ++i) curve.Add(1, 3.0, kWeight);
  EXPECT_NEAR(curve.At(1), 3.0, 1e-6);
}

TEST(CostCurve, SharesAKnotAmongLargeSizes) {
  CostCurve curve(0.1);
  curve.Add(1, 1.0, kWeight);
  curve.Add(128, 8.0, kWeight);
  EXPECT_TRUE(curve.is_measured(130));
  EXPECT_TRUE(curve.is_measured(126));
  EXPECT_FALSE(curve.is_measured(160));
  EXPECT_NEAR(curve.At(128), 8.0, 1e-12);
  EXPECT_NEAR(curve.At(129), 8.0 + 0.1, 1e-12);
  EXPECT_GT(curve.At(100000), 1000.0);
}

// Against the plain search.
TEST(CostCurve, FindsTheNearestKnot) {
  std::vector<int> sizes;
  for (int size = 1; size <= 16; ++size) sizes.push_back(size);
  for (int start = 16; start <= 128; start *= 2) {
    for (int part = 1; part <= 4; ++part) sizes.push_back(start + part * start / 4);
  }
  for (int size = 1; size <= 300; ++size) {
    CostCurve curve(0.0);
    curve.Add(size, 1.0, kWeight);
    int nearest = sizes[0];
    for (const int other : sizes) {
      if (std::abs(other - size) < std::abs(nearest - size)) nearest = other;
    }
    for (const int other : sizes) EXPECT_EQ(curve.is_measured(other), other == nearest) << size;
  }
}

// Of sizes that were seldom compared more is believed; what every change takes cancels out.
TEST(CostCurve, MovesSizesApartByWhatChangesShow) {
  CostCurve curve(0.0);
  for (const int size : {1, 4}) curve.Add(size, 1.0, kWeight);
  const double weight = 0.1;
  const double truth = std::log(2.0);
  const double change = 0.1;  // that every change takes
  for (int i = 0; i < 4; ++i) {
    const double wrong = truth - std::log(curve.At(4) / curve.At(1));
    curve.Compare(1, 4, change + wrong, weight);
    curve.Compare(4, 1, change - (truth - std::log(curve.At(4) / curve.At(1))), weight);
  }
  EXPECT_NEAR(std::log(curve.At(4) / curve.At(1)), truth, 0.1);
  for (int i = 0; i < 100; ++i) {
    curve.Compare(1, 4, change + truth - std::log(curve.At(4) / curve.At(1)), weight);
    curve.Compare(4, 1, change - truth + std::log(curve.At(4) / curve.At(1)), weight);
  }
  EXPECT_NEAR(std::log(curve.At(4) / curve.At(1)), truth, weight * change);
  const double before = curve.At(4) / curve.At(1);
  curve.Add(9, curve.At(4), kWeight);
  curve.Compare(4, 9, 0.2, weight);  // nearly all of it is the new size's
  EXPECT_NEAR(curve.At(4) / curve.At(1), before, 0.01 * before);
  EXPECT_NEAR(std::log(curve.At(9) / curve.At(4)), 0.5 * 0.2, 1e-9);
}

}  // namespace
}  // namespace tandem
