#include "bench/synthetic_acceptance.h"

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int kSyntheticVocab = 50;

// Judges a draft of `tokens`, with greedy rows whose token is 20 + slot.
Verdict JudgeOnce(const JudgeFunction& judge, const std::vector<TokenId>& tokens, uint32_t position,
                  int* num_rows) {
  const RandomSource random(7);
  std::vector<Distribution> rows(tokens.size() + 1);
  *num_rows = 0;
  const auto target = [&](int slot) -> absl::StatusOr<const Distribution*> {
    EXPECT_EQ(slot, (*num_rows)++);
    rows[slot].only = 20 + slot;
    return &rows[slot];
  };
  const auto uniform = [&](int slot) {
    return random.Uniform({.stream = RandomStream::kAccept,
                           .position = position,
                           .slot = static_cast<uint32_t>(slot)});
  };
  const auto residual = [](absl::Span<const float>, int) { return TokenId{-1}; };
  const auto draw = [](const Distribution& row, int) { return row.only; };
  std::vector<Distribution> draft;
  for (const TokenId token : tokens) draft.push_back({.only = token});
  const RoundNoise noise{uniform, residual, draw};
  HostSlots slots(tokens, target, draft, noise);
  const auto verdict = judge(AcceptanceRule::kToken, static_cast<int>(tokens.size()), slots);
  EXPECT_TRUE(verdict.ok());
  return *verdict;
}

TEST(SyntheticJudge, AcceptsAtTheRateThatIsAskedForWhateverTheTokens) {
  constexpr int kRounds = 20000;
  constexpr int kDrafted = 4;
  for (const double acceptance : {0.0, 0.3, 0.8, 1.0}) {
    const JudgeFunction judge = SyntheticJudge(acceptance, kSyntheticVocab);
    int64_t tokens = 0;
    for (uint32_t round = 0; round < kRounds; ++round) {
      int num_rows = 0;
      const Verdict a = JudgeOnce(judge, {1, 2, 3, 4}, round, &num_rows);
      EXPECT_EQ(num_rows, a.num_accepted + 1);
      EXPECT_EQ(a.next, 20 + a.num_accepted);
      const Verdict b = JudgeOnce(judge, {20, 21, 22, 23}, round, &num_rows);
      EXPECT_EQ(a.num_accepted, b.num_accepted);
      tokens += a.num_accepted + 1;
    }
    // A round's tokens are from 1 to 5, so their standard deviation is at most 2, that of the mean
    // 2 / sqrt(20000) = 0.0142; five of these.
    EXPECT_NEAR(static_cast<double>(tokens) / kRounds, ExpectedTokensPerRound(acceptance, kDrafted),
                5 * 0.0142);
  }
}

TEST(SyntheticJudge, RejectsTokensThatTheTargetDoesNotKnow) {
  int num_rows = 0;
  EXPECT_EQ(JudgeOnce(SyntheticJudge(1.0, kSyntheticVocab), {1, kSyntheticVocab, 2}, 9, &num_rows)
                .num_accepted,
            1);
  EXPECT_EQ(num_rows, 2);
  EXPECT_EQ(JudgeOnce(SyntheticJudge(1.0, kSyntheticVocab), {-1}, 9, &num_rows).num_accepted, 0);
}

TEST(SyntheticJudge, ExpectsAGeometricSeries) {
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(0.8, 4), (1 - std::pow(0.8, 5)) / 0.2);
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(1.0, 3), 4.0);
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(0.0, 3), 1.0);
}

}  // namespace
}  // namespace tandem
