#include "draft/policy/draft_temperature.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// The target's distribution, and a draft's that is made from the same logits divided by `flatness`
// and scaled by `factor`.
struct Rows {
  Distribution target;
  Distribution draft;
};
Rows RandomRows(std::mt19937_64& random, float flatness, float factor) {
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(200);
  for (float& logit : logits) logit = normal(random);
  Rows rows;
  EXPECT_TRUE(MakeDistribution(logits, {}, nullptr, &rows.target).ok());
  EXPECT_TRUE(
      MakeDistribution(logits, {.temperature = flatness / factor}, nullptr, &rows.draft).ok());
  return rows;
}

void Learn(float flatness, int num_rounds, DraftTemperature* draft_temperature) {
  std::mt19937_64 random(1);
  for (int round = 0; round < num_rounds; ++round) {
    const int depth = draft_temperature->NextDepth(4);
    if (depth < 0) continue;
    const Rows rows = RandomRows(random, flatness, draft_temperature->At(depth));
    draft_temperature->Observe(depth, rows.target, rows.draft);
    draft_temperature->Update();
  }
}

TEST(DraftTemperature, FindsTheFactorForAFlatOrSharpDraft) {
  for (const float factor : {0.7f, 1.0f, 1.25f, 1.6f}) {
    DraftTemperature draft_temperature;
    for (int depth = 0; depth < 10; ++depth) EXPECT_EQ(draft_temperature.At(depth), 1.0f);
    Learn(factor, 600, &draft_temperature);
    for (int depth = 0; depth < 10; ++depth)
      EXPECT_EQ(draft_temperature.At(depth), factor) << depth;
  }
}

TEST(DraftTemperature, IgnoresInvalidRows) {
  DraftTemperature draft_temperature;
  Learn(1.25f, 600, &draft_temperature);
  std::mt19937_64 random(2);
  for (const float none : {NAN, 0.0f, -1.0f}) {
    Rows rows = RandomRows(random, 1.0f, 1.0f);
    std::fill(rows.draft.probs.begin(), rows.draft.probs.end(), none);
    draft_temperature.Observe(0, rows.target, rows.draft);
    draft_temperature.Update();
    EXPECT_GT(draft_temperature.Scores(0)[0], 0.0);
    EXPECT_EQ(draft_temperature.At(0), 1.25f);
  }
}

// The expected acceptance sum_v min(p, q) of every factor follows from rows drawn with one factor.
TEST(DraftTemperature, ScoresAreExpectedAcceptances) {
  std::mt19937_64 random(2);
  const Rows rows = RandomRows(random, 1.4f, 1.0f);
  DraftTemperature draft_temperature;
  draft_temperature.Observe(2, rows.target, rows.draft);
  std::mt19937_64 again(2);
  for (size_t i = 0; i < DraftTemperature::kFactors.size(); ++i) {
    again.seed(2);
    const Rows other = RandomRows(again, 1.4f, DraftTemperature::kFactors[i]);
    double overlap = 0.0;
    for (int v = 0; v < 200; ++v) {
      overlap += std::min(other.target.probs[v], other.draft.probs[v]);
    }
    // 200 entries, each off by some roundings of f32 logarithms and exponentials.
    EXPECT_NEAR(draft_temperature.Scores(2)[i], overlap, 1e-4) << i;
  }
}

TEST(DraftTemperature, LearnsDepthsSeparately) {
  DraftTemperature draft_temperature;
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    const int depth = draft_temperature.NextDepth(2);
    if (depth < 0) continue;
    const Rows rows = RandomRows(random, depth == 0 ? 0.7f : 1.4f, draft_temperature.At(depth));
    draft_temperature.Observe(depth, rows.target, rows.draft);
    draft_temperature.Update();
  }
  EXPECT_LT(draft_temperature.At(0), 1.0f);
  EXPECT_GT(draft_temperature.At(1), 1.0f);
}

TEST(DraftTemperature, ObservesSeldomAndOneDepthAtATime) {
  DraftTemperature draft_temperature;
  std::mt19937_64 random(4);
  const Rows rows = RandomRows(random, 1.0f, 1.0f);
  int num_looks = 0;
  for (int round = 0; round < 6400; ++round) {
    EXPECT_EQ(draft_temperature.NextDepth(0), -1);
    const int depth = draft_temperature.NextDepth(3);
    EXPECT_LT(depth, 3);
    if (depth < 0) continue;
    ++num_looks;
    draft_temperature.Observe(depth, rows.target, rows.draft);
  }
  EXPECT_GT(num_looks, 50);
  EXPECT_LT(num_looks, 200);
}

TEST(DraftTemperature, IgnoresRowsWithoutADraw) {
  DraftTemperature draft_temperature;
  const Distribution certain{.only = 3, .probs = {}};
  for (int i = 0; i < 20; ++i) draft_temperature.Observe(0, certain, certain);
  draft_temperature.Update();
  EXPECT_EQ(draft_temperature.At(0), 1.0f);
  EXPECT_EQ(draft_temperature.Scores(0)[0], 0.0);
}

// Observations have no effect before Update, so all rows of a round are drawn with the same
// factors.
TEST(DraftTemperature, ChangesOnlyBetweenRounds) {
  DraftTemperature draft_temperature;
  std::mt19937_64 random(5);
  const Rows rows = RandomRows(random, 1.6f, 1.0f);
  for (int i = 0; i < 20; ++i) draft_temperature.Observe(0, rows.target, rows.draft);
  EXPECT_EQ(draft_temperature.At(0), 1.0f);
  draft_temperature.Update();
  EXPECT_GT(draft_temperature.At(0), 1.0f);
}

}  // namespace
}  // namespace tandem
