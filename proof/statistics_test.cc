#include "proof/statistics.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// From the usual tables: upper points of 5, 1 and 0.1 percent.
TEST(ChiSquareTail, HasTheTabulatedPoints) {
  const struct {
    int degrees;
    double point, tail;
  } table[] = {{1, 3.841, 0.05},   {1, 6.635, 0.01},   {1, 10.828, 0.001},   {10, 18.307, 0.05},
               {10, 23.209, 0.01}, {30, 43.773, 0.05}, {100, 149.449, 0.001}};
  for (const auto& row : table) {
    // Points are rounded in their last place; the density is below 0.03 there.
    EXPECT_NEAR(ChiSquareTail(row.point, row.degrees), row.tail, 0.0005 * 0.03);
    EXPECT_NEAR(ChiSquareOfTail(row.tail, row.degrees), row.point, 0.0006);
  }
  EXPECT_EQ(ChiSquareTail(5.0, 0), 1.0);
}

// Two cells, 60 and 40 of 100 for halves: G = 2 (60 ln 1.2 + 40 ln 0.8) = 4.0271, Williams'
// correction 1 + (4 - 1) / (6 * 100 * 1) = 1.005.
TEST(GTest, MatchesTheFormulaForACoin) {
  const Fit fit = GTest({60, 40}, {0.5, 0.5});
  EXPECT_EQ(fit.degrees, 1);
  EXPECT_NEAR(fit.statistic, 2.0 * (60 * std::log(1.2) + 40 * std::log(0.8)) / 1.005, 1e-12);
  EXPECT_NEAR(fit.p_value, std::erfc(std::sqrt(fit.statistic / 2.0)), 1e-12);
  EXPECT_EQ(GTest({50, 50}, {0.5, 0.5}).p_value, 1.0);
}

TEST(GTest, MergesRareCells) {
  // 9 + 9 of 100 are expected: merged they are 18, a cell of their own.
  EXPECT_EQ(GTest({50, 32, 9, 9}, {0.5, 0.32, 0.09, 0.09}).degrees, 2);
  // 2 + 2 are too few even when merged: they join the smallest cell, of 46.
  const Fit joined = GTest({50, 40, 5, 5}, {0.5, 0.46, 0.02, 0.02});
  EXPECT_EQ(joined.degrees, 1);
  EXPECT_NEAR(joined.statistic, GTest({50, 50}, {0.5, 0.5}).statistic, 1e-12);
  // A single cell is left, so there is nothing to compare.
  EXPECT_EQ(GTest({3, 4}, {0.5, 0.5}).degrees, 0);
  EXPECT_EQ(GTest({0, 0}, {0.5, 0.5}).p_value, 1.0);
}

TEST(GTest, RejectsCountsOfImpossibleCells) {
  const Fit fit = GTest({999, 1}, {1.0, 0.0});
  EXPECT_EQ(fit.p_value, 0.0);
  EXPECT_TRUE(std::isinf(fit.statistic));
}

// Samples of the law itself have uniform p-values, so of 2000 about 100 are below 1/20, within 4 *
// sqrt(2000 * .05 * .95) = 39. Samples of another law have only small ones.
TEST(GTest, FalseRejectionsMatchTheLevel) {
  std::mt19937_64 random(7);
  const std::vector<double> law = {0.4, 0.3, 0.15, 0.1, 0.03, 0.02};
  const std::vector<double> other = {0.36, 0.34, 0.15, 0.1, 0.03, 0.02};
  int rejected = 0;
  int other_accepted = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    for (const bool honest : {true, false}) {
      std::discrete_distribution<int> draw(honest ? law.begin() : other.begin(),
                                           honest ? law.end() : other.end());
      std::vector<int64_t> counts(law.size());
      // Distances of .04 from .4 and .3: noncentrality n .04^2 (1 / .4 + 1 / .3) = 28 at 3000.
      const int runs = honest ? 500 : (trial < 20 ? 3000 : 0);
      for (int i = 0; i < runs; ++i) ++counts[draw(random)];
      if (honest) rejected += GTest(counts, law).p_value < 0.05;
      if (runs == 3000) other_accepted += GTest(counts, law).p_value > 0.05;
    }
  }
  EXPECT_NEAR(rejected, 100, 39);
  EXPECT_LT(other_accepted, 3);
}

TEST(HolmAdjusted, MatchesTheStepDownProcedure) {
  // Sorted, .01 .02 .03 .5 times 4 3 2 1 give .04 .06 .06 .5 with the running maximum.
  const std::vector<double> adjusted = HolmAdjusted({0.02, 0.5, 0.01, 0.03});
  EXPECT_NEAR(adjusted[0], 0.06, 1e-15);
  EXPECT_NEAR(adjusted[1], 0.5, 1e-15);
  EXPECT_NEAR(adjusted[2], 0.04, 1e-15);
  EXPECT_NEAR(adjusted[3], 0.06, 1e-15);
  EXPECT_EQ(HolmAdjusted({0.7, 0.9}), std::vector<double>({1.0, 1.0}));
}

// One degree at alpha .05 and power .8 needs (1.95996 + .84162)^2 = 7.849 (the other tail adds
// less than 1e-5), so TV = sqrt(7.849 / (4 runs)).
TEST(SeenVariation, MatchesTextbookPower) {
  EXPECT_NEAR(SeenVariation(10000, 1, 0.05, 0.8), std::sqrt(7.849 / 40000), 1e-5);
  // Ten degrees at alpha .05 and power .9: noncentrality 20.53 (Haynam, Govindarajulu and Leone).
  EXPECT_NEAR(SeenVariation(10000, 10, 0.05, 0.9), std::sqrt(20.53 / 40000), 1e-5);
  EXPECT_EQ(SeenVariation(1, 50, 1e-4, 0.99), 1.0);
  EXPECT_EQ(SeenVariation(0, 5, 0.05, 0.8), 1.0);
}

TEST(StandardScore, IsNearlyNormal) {
  for (const int degrees : {30, 200}) {
    for (const double z : {0.0, 2.0, 4.0}) {
      const double tail = 0.5 * std::erfc(z / std::sqrt(2.0));
      // Wilson and Hilferty: good to .02 from 30 degrees on.
      EXPECT_NEAR(StandardScore(ChiSquareOfTail(tail, degrees), degrees), z, 0.03);
    }
  }
  EXPECT_EQ(StandardScore(3.0, 0), 0.0);
}

TEST(GTestTwo, ComparesTwoSamples) {
  EXPECT_EQ(GTestTwo({}, {}).degrees, 0);
  const Fit equal = GTestTwo({50, 30, 20}, {100, 60, 40});
  EXPECT_NEAR(equal.statistic, 0.0, 1e-9);
  EXPECT_EQ(equal.degrees, 2);
  // 2 sum O log(O / E) = 4 (60 log 1.2 + 40 log 0.8) = 8.0542; Williams: 1 + 3 * 0.015 / 6.
  const Fit other = GTestTwo({60, 40}, {40, 60});
  EXPECT_NEAR(other.statistic, 8.0542 / 1.0075, 1e-3);
  EXPECT_NEAR(other.p_value, 0.00469, 1e-4);
  // Cells with few draws in both are merged; here with the smallest other one.
  EXPECT_EQ(GTestTwo({50, 50, 3, 2}, {50, 50, 2, 3}).degrees, 1);
  EXPECT_EQ(GTestTwo({50, 50, 3, 8}, {50, 50, 2, 8}).degrees, 2);
}

TEST(Tails, AreExact) {
  EXPECT_EQ(BinomialTail(0, 4, 0.5), 1.0);
  EXPECT_NEAR(BinomialTail(3, 4, 0.5), 5.0 / 16, 1e-12);
  EXPECT_EQ(BinomialTail(1, 4, 0.0), 0.0);
  EXPECT_EQ(BinomialTail(4, 4, 1.0), 1.0);
  EXPECT_NEAR(LargestShare(0, 300), 1.0 - std::pow(0.025, 1.0 / 300), 1e-9);
  EXPECT_NEAR(BinomialTail(3, 10, LargestShare(2, 10)), 0.975, 1e-9);
  EXPECT_EQ(LargestShare(7, 7), 1.0);
  EXPECT_NEAR(FisherTail(3, 3, 0, 3), 1.0 / 20, 1e-12);
  EXPECT_NEAR(FisherTail(2, 3, 1, 3), 0.5, 1e-12);
  EXPECT_EQ(FisherTail(0, 3, 3, 3), 1.0);
  EXPECT_EQ(FisherTail(3, 3, 3, 3), 1.0);
}

}  // namespace
}  // namespace tandem
