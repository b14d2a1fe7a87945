#include "draft/policy/acceptance_estimate.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr DraftOption kByModel = {.source = DraftSource::kModel};
DraftOption ByLookup(int evidence) {
  return {.source = DraftSource::kLookup, .evidence = evidence};
}

std::vector<double> SurvivalOf(const AcceptanceEstimate& estimate, const DraftOption& kind,
                               const AcceptanceEstimate* wider = nullptr, int length = 8) {
  std::vector<double> survival(length);
  estimate.Survival(kind, wider, absl::MakeSpan(survival));
  return survival;
}

// Observes rounds of drafts of rates.size() tokens, in which token i is kept with chance rates[i].
void Observe(const std::vector<double>& rates, int num_rounds, const DraftOption& kind,
             AcceptanceEstimate* estimate) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform;
  for (int round = 0; round < num_rounds; ++round) {
    int accepted = 0;
    while (accepted < static_cast<int>(rates.size()) && uniform(random) < rates[accepted]) {
      ++accepted;
    }
    estimate->Observe(kind, static_cast<int>(rates.size()), accepted);
  }
}

TEST(AcceptanceEstimate, LearnsTheSurvivalOfEveryDepth) {
  const std::vector<double> rates = {0.9, 0.7, 0.8, 0.5};
  AcceptanceEstimate estimate;
  Observe(rates, 3000, kByModel, &estimate);
  const std::vector<double> survival = SurvivalOf(estimate, kByModel);
  double expected = 1.0;
  for (int i = 0; i < 4; ++i) {
    expected *= rates[i];
    // 289 tests with forgetting: a deviation of 0.03 each, less than 0.1 in the product.
    EXPECT_NEAR(survival[i], expected, 0.1) << i;
  }
  // An untested depth is like the one before it.
  EXPECT_NEAR(survival[5] / survival[4], survival[4] / survival[3], 1e-9);
  for (int i = 1; i < 8; ++i) EXPECT_LE(survival[i], survival[i - 1]);
}

TEST(AcceptanceEstimate, ForgetsOldRounds) {
  AcceptanceEstimate estimate;
  Observe({0.95}, 1000, kByModel, &estimate);
  EXPECT_GT(SurvivalOf(estimate, kByModel)[0], 0.9);
  Observe({0.1}, 1000, kByModel, &estimate);
  EXPECT_LT(SurvivalOf(estimate, kByModel)[0], 0.2);
}

TEST(AcceptanceEstimate, StartsFromTheWiderEstimate) {
  AcceptanceEstimate wider;
  Observe({0.3, 0.3}, 2000, kByModel, &wider);
  AcceptanceEstimate own;
  const std::vector<double> general = SurvivalOf(wider, kByModel);
  const std::vector<double> start = SurvivalOf(own, kByModel, &wider);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(start[i], general[i], 1e-9);
  Observe({0.9, 0.9}, 300, kByModel, &own);
  EXPECT_GT(SurvivalOf(own, kByModel, &wider)[0], 0.8);
}

TEST(AcceptanceEstimate, LearnsKindsSeparately) {
  AcceptanceEstimate estimate;
  const double untouched = SurvivalOf(estimate, ByLookup(2))[0];
  Observe({0.05}, 500, kByModel, &estimate);
  Observe({0.95}, 500, ByLookup(3), &estimate);
  EXPECT_EQ(SurvivalOf(estimate, ByLookup(2))[0], untouched);
  EXPECT_LT(SurvivalOf(estimate, kByModel)[0], 0.2);
  EXPECT_GT(SurvivalOf(estimate, ByLookup(3))[0], 0.8);
}

TEST(AcceptanceEstimate, IgnoresTokensAfterARejection) {
  AcceptanceEstimate once;
  AcceptanceEstimate longer;
  once.Observe(kByModel, 1, 0);
  longer.Observe(kByModel, 8, 0);
  EXPECT_EQ(SurvivalOf(once, kByModel), SurvivalOf(longer, kByModel));
}

}  // namespace
}  // namespace tandem
