#include "draft/policy/round_costs.h"

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr double kWeight = 0.1;

TEST(CostCurve, UsesItsSlopeBeforeAnythingIsMeasured) {
  const CostCurve curve(0.1);
  EXPECT_DOUBLE_EQ(curve.At(1), 1.0);
  EXPECT_DOUBLE_EQ(curve.At(11), 2.0);
  EXPECT_FALSE(curve.is_measured(1));
}

TEST(CostCurve, InterpolatesBetweenMeasuredSizes) {
  CostCurve curve(0.1);
  curve.Add(1, 2.0, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 2.0);
  EXPECT_DOUBLE_EQ(curve.At(6), 3.0);  // the slope, relative to the cost of one row
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
  curve.Add(4, 3.0, kWeight);  // one sample hardly moves the mean of three
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

TEST(CostCurve, StartsWithTheLesserOfTwoSamplesAndThenAverages) {
  CostCurve curve(0.0);
  for (const double cost : {9.0, 2.0}) curve.Add(1, cost, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 2.0);
  curve.Add(1, 5.0, kWeight);
  EXPECT_DOUBLE_EQ(curve.At(1), 3.0);  // of 2, 2 and 5
  for (int i = 0; i < 200; ++i) curve.Add(1, 3.0, kWeight);
  EXPECT_NEAR(curve.At(1), 3.0, 1e-6);
}

TEST(CostCurve, LargeSizesShareKnots) {
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

// Compares with a linear search.
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

// The fewer comparisons a size has, the more each new one moves it. An overhead of every change
// cancels out.
TEST(CostCurve, LearnsRelationsFromChangesOfSize) {
  CostCurve curve(0.0);
  for (const int size : {1, 4}) curve.Add(size, 1.0, kWeight);
  const double weight = 0.1;
  const double truth = std::log(2.0);
  const double change = 0.1;  // overhead of every change
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
  curve.Compare(4, 9, 0.2, weight);  // moves mainly the new size
  EXPECT_NEAR(curve.At(4) / curve.At(1), before, 0.01 * before);
  EXPECT_NEAR(std::log(curve.At(9) / curve.At(4)), 0.5 * 0.2, 1e-9);
}

RoundCosts::Round RoundOf(int num_rows, int num_steps, double draft_ms, double verify_ms) {
  return {.num_rows = num_rows,
          .num_steps = num_steps,
          .num_draft_sequences = 1,
          .num_unread = 0,
          .draft_time = absl::Milliseconds(draft_ms),
          .verify_time = absl::Milliseconds(verify_ms)};
}

TEST(RoundCosts, AreRelativeToAPlainPass) {
  RoundCosts costs;
  EXPECT_FALSE(costs.knows_pass(1));
  EXPECT_FALSE(costs.knows_step());
  for (int i = 0; i < 5; ++i) {
    costs.Observe(RoundOf(5, 4, 8.0, 15.0));
    costs.Observe(RoundOf(1, 0, 0.0, 10.0));
  }
  EXPECT_TRUE(costs.knows_pass(1));
  EXPECT_TRUE(costs.knows_pass(5));
  EXPECT_FALSE(costs.knows_pass(3));
  EXPECT_TRUE(costs.knows_step());
  EXPECT_NEAR(costs.Pass(5), 1.5, 1e-9);
  EXPECT_NEAR(costs.Pass(3), 1.25, 1e-9);
  EXPECT_NEAR(costs.Step(1), 0.2, 1e-9);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(costs.PlainPass()), 10.0, 1e-6);
}

// Before anything but a prompt and a plain pass was measured.
TEST(RoundCosts, ExpectWhatSizesAndPromptsSuggest) {
  RoundCosts costs;
  costs.ExpectStep(0.4);
  EXPECT_NEAR(costs.Step(1), 0.4, 1e-9);
  EXPECT_TRUE(costs.knows_nothing());
  costs.ObservePrompt(7, absl::Milliseconds(350));  // too short to show the cost of a row
  EXPECT_FALSE(costs.has_long_passes());
  costs.ObservePrompt(100, absl::Milliseconds(800));
  costs.ObservePrompt(100, absl::Milliseconds(400));
  costs.ObservePrompt(100, absl::Milliseconds(600));
  EXPECT_TRUE(costs.has_long_passes());
  EXPECT_TRUE(costs.knows_nothing());
  costs.Observe(RoundOf(1, 0, 0.0, 20.0));
  EXPECT_FALSE(costs.knows_nothing());
  EXPECT_NEAR(costs.Pass(2), 1.2, 1e-9);  // 4 of 20 ms
  EXPECT_NEAR(costs.Pass(6), 2.0, 1e-9);
  EXPECT_NEAR(costs.Reading(50), 50 * 0.2 * 0.4, 1e-9);
  EXPECT_TRUE(costs.has_long_passes());
  EXPECT_FALSE(costs.knows_step());
  costs.Observe(RoundOf(2, 1, 10.0, 22.0));  // measured at once, because it is new
  EXPECT_TRUE(costs.knows_step());
  EXPECT_NEAR(costs.Pass(2), 1.1, 1e-9);
  EXPECT_NEAR(costs.Step(1), 0.5, 1e-9);
  EXPECT_NEAR(costs.LossOf(1, 1, costs.Step(1), 0), 0.6, 1e-9);
  EXPECT_NEAR(costs.LossOf(1, 1, costs.Step(1), 1), -0.4, 1e-9);
}

// Rows of a draft from one pass have a curve of their own. Unread tokens are rows of it, unless
// there are so many that they take passes of their own.
TEST(RoundCosts, LearnTheCostOfADraftInOnePass) {
  RoundCosts costs;
  costs.ExpectStep(0.3);
  EXPECT_NEAR(costs.OnePass(1), 0.3, 1e-9);
  EXPECT_EQ(costs.OnePass(0), 0.0);
  const auto round = [](int rows, int unread, double draft_ms) {
    return RoundCosts::Round{.is_plain = false,
                             .num_rows = 1,
                             .num_steps = 1,
                             .num_draft_sequences = 1,
                             .num_unread = unread,
                             .num_draft_rows = rows,
                             .draft_time = absl::Milliseconds(draft_ms),
                             .verify_time = absl::Milliseconds(10)};
  };
  for (int i = 0; i < 6; ++i) {
    for (const int rows : {1, 4, 9}) costs.Observe(round(rows, 0, 2.0 + 0.5 * rows));
  }
  EXPECT_NEAR(costs.OnePass(4), 0.4, 1e-6);
  EXPECT_NEAR(costs.OnePass(6), 0.5, 1e-6);
  EXPECT_NEAR(costs.Drafting(/*in_one_pass=*/true, 3, 3), 0.65, 1e-6);
  costs.ObserveReading(100, absl::Milliseconds(10));
  for (int i = 0; i < 9; ++i) costs.Observe(round(4, 10, 5.0));  // 1 ms was reading
  EXPECT_NEAR(costs.OnePass(4), 0.4, 1e-6);
  EXPECT_EQ(RoundCosts::RowsToRead(1), 0);
  EXPECT_EQ(RoundCosts::RowsToRead(16), 15);
  EXPECT_EQ(RoundCosts::RowsToRead(17), 0);
}

TEST(RoundCosts, ShortPassesAreNotLong) {
  RoundCosts costs;
  costs.ObservePrompt(100, absl::Milliseconds(20));
  costs.Observe(RoundOf(1, 0, 0.0, 2.0));
  EXPECT_FALSE(costs.has_long_passes());
}

TEST(RoundCosts, IgnoreImpossibleTimes) {
  const auto observe_all = [](RoundCosts* costs) {
    costs->ObserveReading(100, absl::Milliseconds(10));
    costs->Observe(RoundOf(5, 4, 8.0, 15.0));
    costs->Observe(RoundOf(24, 4, 8.0, 40.0));
  };
  for (const absl::Duration impossible : {absl::ZeroDuration(), -absl::Seconds(5),
                                          absl::InfiniteDuration(), -absl::InfiniteDuration()}) {
    RoundCosts costs;
    RoundCosts undisturbed;
    for (int i = 0; i < 20; ++i) {
      RoundCosts::Round round = RoundOf(i % 2 == 0 ? 5 : 24, 4, 8.0, 15.0);
      round.verify_time = impossible;
      costs.Observe(round);
      round = RoundOf(i % 2 == 0 ? 5 : 24, 4, 8.0, i % 2 == 0 ? 15.0 : 40.0);
      round.draft_time = impossible;
      costs.Observe(round);
      costs.ObserveReading(100, impossible);
      observe_all(&costs);
      observe_all(&undisturbed);
    }
    EXPECT_NEAR(costs.Pass(5), undisturbed.Pass(5), 1e-9) << impossible;
    EXPECT_NEAR(costs.Pass(24), undisturbed.Pass(24), 1e-9) << impossible;
    EXPECT_NEAR(costs.Step(1), undisturbed.Step(1), 1e-9) << impossible;
    EXPECT_NEAR(costs.Reading(7), undisturbed.Reading(7), 1e-9) << impossible;
  }
}

// A draft may take less time than the estimate for its reading alone.
TEST(RoundCosts, AStepNeverCostsNothing) {
  RoundCosts costs;
  for (int i = 0; i < 3; ++i) costs.Observe(RoundOf(1, 0, 0.0, 10.0));
  costs.ObserveReading(1, absl::Milliseconds(50));
  RoundCosts::Round round = RoundOf(5, 4, 8.0, 15.0);
  round.num_unread = 100;
  costs.Observe(round);
  for (int i = 0; i < 40; ++i) costs.Observe(RoundOf(5, 4, 8.0, 15.0));
  EXPECT_NEAR(costs.Step(1), 0.2, 0.02);
}

TEST(RoundCosts, FollowTheSpeedOfTheMachineInAllSizes) {
  RoundCosts costs;
  for (int i = 0; i < 200; ++i) {
    costs.Observe(RoundOf(5, 4, 8.0, 15.0));
    costs.Observe(RoundOf(1, 0, 0.0, 10.0));
  }
  // The machine slows down to half its speed, and only the larger pass is observed.
  for (int i = 0; i < 60; ++i) costs.Observe(RoundOf(5, 4, 16.0, 30.0));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(costs.PlainPass()), 20.0, 2.0);
  EXPECT_NEAR(costs.Pass(5), 1.5, 0.15);
  EXPECT_NEAR(costs.Step(1), 0.2, 0.03);
}

TEST(RoundCosts, AreHardlyMovedByADisturbance) {
  RoundCosts costs;
  for (int i = 0; i < 50; ++i) {
    costs.Observe(RoundOf(2, 1, 2.0, 11.0));
    costs.Observe(RoundOf(1, 0, 0.0, 10.0));
  }
  costs.Observe(RoundOf(2, 1, 1000.0, 1000.0));
  EXPECT_NEAR(costs.Pass(2), 1.1, 0.03);
  EXPECT_NEAR(costs.Step(1), 0.2, 0.02);
  EXPECT_LT(absl::ToDoubleMilliseconds(costs.PlainPass()), 11.1);  // 10 times 1.5^(1/4)
}

// A wrong measurement is corrected even if sizes seldom change, and even if the first round of each
// size takes longer than the following ones.
TEST(RoundCosts, LearnRelationsWhereSizesChange) {
  RoundCosts costs;
  for (int i = 0; i < 2; ++i) {
    costs.Observe(RoundOf(2, 1, 2.0, 11.0));
    costs.Observe(RoundOf(3, 2, 4.0, 11.0));
  }
  for (int i = 0; i < 200; ++i) {
    for (const int rows : {2, 3}) {
      for (int j = 0; j < 20; ++j) {
        costs.Observe(RoundOf(rows, rows - 1, 2.0, (rows == 2 ? 11.0 : 15.0) * (j == 0 ? 1.1 : 1)));
      }
    }
  }
  EXPECT_NEAR(costs.Pass(3) / costs.Pass(2), 15.0 / 11.0, 0.02);
}

// Occasional outliers, and first rounds of a size that take less time than the following ones, do
// not change the relation of a size to others.
TEST(RoundCosts, KeepTheRelationOfSeldomSeenSizes) {
  RoundCosts costs;
  for (int i = 0; i < 20; ++i) {
    for (const int rows : {1, 2, 9}) costs.Observe(RoundOf(rows, 0, 0.0, 10.0 + rows));
  }
  for (int i = 0; i < 20000; ++i) {
    const int rows = 1 + i / 10 % 2;
    const double disturbance = i % 10 == 0 ? 0.85 : i % 7 == 3 ? 2.0 : 1.0;
    costs.Observe(RoundOf(rows, 0, 0.0, (10.0 + rows) * disturbance));
  }
  EXPECT_NEAR(costs.Pass(9), 19.0 / 11.0, 0.1);
  EXPECT_NEAR(costs.Pass(2), 12.0 / 11.0, 0.05);
}

// A draft with many unread tokens does not raise the cost of a step.
TEST(RoundCosts, SeparateReadingFromDrafting) {
  RoundCosts costs;
  for (int i = 0; i < 5; ++i) costs.Observe(RoundOf(1, 0, 0.0, 10.0));
  costs.ObserveReading(100, absl::Milliseconds(20));
  EXPECT_NEAR(costs.Reading(100), 2.0, 1e-9);
  for (int i = 0; i < 20; ++i) {
    RoundCosts::Round round = RoundOf(3, 2, 4.0 + 0.2 * 10, 10.0);
    round.num_unread = 10;
    costs.Observe(round);
  }
  EXPECT_NEAR(costs.Step(1), 0.2, 1e-6);
  RoundCosts::Round mostly_reading = RoundOf(3, 2, 200.0, 10.0);
  mostly_reading.num_unread = 900;
  costs.Observe(mostly_reading);
  EXPECT_NEAR(costs.Step(1), 0.2, 1e-6);
}

// One pass over k rows costs less than k steps, so more tokens pay, and a smaller head gains less.
TEST(BestRoundGain, IsGreaterInOnePass) {
  const auto certain = [](int) { return 1.0; };
  EXPECT_NEAR(BestRoundGain(0.2, /*in_one_pass=*/false, certain), 9.0 / (1.0 + 8 * 0.25), 1e-12);
  EXPECT_NEAR(BestRoundGain(0.2, /*in_one_pass=*/true, certain),
              9.0 / (1.0 + 0.2 * (1.0 + 0.05 * 7) + 0.05 * 8), 1e-12);
}

}  // namespace

}  // namespace tandem
