#include "draft/policy/confidence_curve.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(ConfidenceCurve, StartsWithTheConfidenceItself) {
  const ConfidenceCurve curve;
  for (const float confidence : {0.0f, 0.05f, 0.45f, 0.97f, 1.0f}) {
    EXPECT_DOUBLE_EQ(curve.Acceptance(confidence), confidence);
  }
}

TEST(ConfidenceCurve, LearnsByConfidence) {
  ConfidenceCurve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.Observe(0.95f, /*is_accepted=*/i % 2 == 0);
    curve.Observe(0.25f, /*is_accepted=*/i % 10 == 0);
  }
  EXPECT_NEAR(curve.Acceptance(0.96f), 0.5, 0.03);
  EXPECT_NEAR(curve.Acceptance(0.21f), 0.1, 0.03);
  EXPECT_NEAR(curve.MeanAcceptance(), 0.3, 0.03);
  EXPECT_DOUBLE_EQ(curve.Acceptance(0.55f), 0.55f);  // not observed
}

// A mask's row does not know the tokens before it, so the same confidence means another chance.
TEST(ConfidenceCurve, CountsRowsOfMasksSeparately) {
  ConfidenceCurve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.Observe(0.35f, i % 4 == 0);
    curve.Observe(0.35f, i % 4 != 0, /*is_mask=*/true);
  }
  EXPECT_NEAR(curve.Acceptance(0.35f), 0.25, 0.03);
  EXPECT_NEAR(curve.Acceptance(0.35f, /*is_mask=*/true), 0.75, 0.03);
  EXPECT_NEAR(curve.MeanAcceptance(), 0.5, 0.05);
  DraftSurvival survival({.curve = &curve, .min_for_row = 0.5});
  EXPECT_TRUE(survival.Takes(0.35f, /*is_mask=*/true));
  EXPECT_FALSE(survival.Takes(0.35f));
}

TEST(ConfidenceCurve, FollowsChanges) {
  ConfidenceCurve curve;
  for (int i = 0; i < 2000; ++i) curve.Observe(0.5f, true);
  for (int i = 0; i < 1000; ++i) curve.Observe(0.5f, false);
  EXPECT_LT(curve.Acceptance(0.5f), 0.1);
}

TEST(ConfidenceCurve, SurvivesSerialization) {
  ConfidenceCurve curve;
  for (int i = 0; i < 100; ++i) curve.Observe(static_cast<float>(i) / 100, i % 3 != 0);
  StateArchive written;
  curve.Serialize(&written);
  StateArchive read(written.numbers());
  ConfidenceCurve restored;
  restored.Serialize(&read);
  ASSERT_TRUE(read.is_complete());
  for (int i = 0; i <= 100; ++i) {
    const float confidence = static_cast<float>(i) / 100;
    EXPECT_EQ(restored.Acceptance(confidence), curve.Acceptance(confidence));
  }
  EXPECT_EQ(restored.MeanAcceptance(), curve.MeanAcceptance());
}

TEST(DraftSurvival, NeverEndsWithoutACurve) {
  DraftSurvival survival(DraftStop{});
  EXPECT_TRUE(survival.Takes(0.0f));
  EXPECT_TRUE(survival.GoesOn());
}

// Confidences multiply: with a threshold of .2, .5 * .5 is worth its row, a third factor is not.
TEST(DraftSurvival, EndsWhereTokensAreNotWorthTheirRow) {
  const ConfidenceCurve curve;
  DraftSurvival survival({.curve = &curve, .min_for_row = 0.2, .min_for_step = 0.2});
  EXPECT_TRUE(survival.Takes(0.5f));
  EXPECT_TRUE(survival.GoesOn());  // .5 times the mean of .7
  EXPECT_TRUE(survival.Takes(0.5f));
  EXPECT_FALSE(survival.GoesOn());  // .25 * .7
  EXPECT_FALSE(survival.Takes(0.5f));
}

}  // namespace
}  // namespace tandem
