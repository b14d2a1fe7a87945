#include "draft/draft_length.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// Costs of which one draft token is `relative` of a plain step.
RoundCosts Costs(double relative) {
  RoundCosts costs;
  const absl::Duration plain = absl::Milliseconds(10);
  for (int i = 0; i < 50; ++i) {
    costs.Observe(1, 0, 0, absl::ZeroDuration(), plain);
    costs.Observe(1, 4, 4, 4 * relative * plain, plain);
  }
  return costs;
}

// A session whose draft tokens are accepted at this rate.
DraftLength Accepting(double rate) {
  DraftLength length(DraftLength::kAuto);
  double owed = 0.0;
  for (int i = 0; i < 5000; ++i) {
    owed += rate;
    const int accepted = owed >= 1.0 ? 1 : 0;
    owed -= accepted;
    length.Observe(1, accepted);
  }
  return length;
}

TEST(DraftLength, IsWhatWasFixed) {
  for (const int k : {0, 1, 8}) {
    DraftLength length(k);
    length.Observe(10, 0);
    EXPECT_EQ(length.Next(RoundCosts()), k);
    EXPECT_EQ(length.Next(Costs(10.0)), k);
  }
}

TEST(DraftLength, IsModestBeforeAnythingIsMeasured) {
  EXPECT_GT(DraftLength(DraftLength::kAuto).Next(RoundCosts()), 0);
}

// The optimum of (1 - alpha^(k+1)) / (1 - alpha) / (1 + k c), by trying every k.
TEST(DraftLength, MaximisesTheExpectedSpeed) {
  for (const double alpha : {0.3, 0.6, 0.7, 0.8, 0.9}) {
    for (const double c : {0.02, 0.05, 0.1, 0.2}) {
      double best_speed = 0.0;
      int best = 0;
      for (int k = 0; k <= 16; ++k) {
        const double speed = (1 - std::pow(alpha, k + 1)) / (1 - alpha) / (1 + k * c);
        if (speed > best_speed) {
          best_speed = speed;
          best = k;
        }
      }
      if (best_speed < 1.05) continue;
      // Near the optimum the speed is flat, and the estimate of alpha leans to its prior.
      EXPECT_NEAR(Accepting(alpha).Next(Costs(c)), best, best > 6 ? 2 : 1) << alpha << " " << c;
    }
  }
}

TEST(DraftLength, StopsWhereDraftingCostsTimeButProbesNowAndThen) {
  DraftLength hopeless = Accepting(0.02);
  const RoundCosts costs = Costs(0.2);
  int num_probes = 0;
  for (int round = 0; round < 640; ++round) num_probes += hopeless.Next(costs) > 0;
  EXPECT_EQ(num_probes, 10);
  // Once drafts are right again it goes back.
  for (int i = 0; i < 2000; ++i) hopeless.Observe(1, 1);
  EXPECT_GT(hopeless.Next(costs), 2);
}

TEST(DraftLength, DecodesPlainlyOnceAndAgainToKnowWhatThatCosts) {
  DraftLength length = Accepting(0.9);
  RoundCosts costs;
  const auto round = [&](int k) {
    costs.Observe(1, k, k, 0.05 * k * absl::Milliseconds(10), absl::Milliseconds(10));
  };
  int num_plain = 0;
  for (int i = 0; i < 1000; ++i) {
    const int k = length.Next(costs);
    num_plain += k == 0;
    EXPECT_EQ(i != 0 || k > 0, true);
    round(k);
  }
  EXPECT_GE(num_plain, 5);
  EXPECT_LE(num_plain, 7);
}

TEST(RoundCosts, AreHardlyMovedByADisturbance) {
  RoundCosts costs = Costs(0.1);
  costs.Observe(1, 0, 0, absl::ZeroDuration(), absl::Seconds(1));
  costs.Observe(1, 4, 4, absl::Seconds(1), absl::Seconds(1));
  EXPECT_NEAR(costs.RelativeCost(), 0.1, 0.02);
}

TEST(RoundCosts, AreTheStepsAndTheRowsShareOfAPlainPass) {
  EXPECT_FALSE(RoundCosts().known());
  EXPECT_NEAR(Costs(0.1).RelativeCost(), 0.1, 1e-3);
  RoundCosts costs;
  for (int i = 0; i < 50; ++i) {
    costs.Observe(1, 0, 0, absl::ZeroDuration(), absl::Milliseconds(10));
    costs.Observe(1, 4, 4, absl::Milliseconds(4), absl::Milliseconds(12));
  }
  EXPECT_NEAR(costs.RelativeCost(), 0.1 + 0.05, 1e-3);  // a step of 1 ms and a row of 0.5 ms
}

}  // namespace
}  // namespace tandem
