#include "tandem/round_stats.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(RoundStats, CountsRoundsAndDepths) {
  RoundStats stats;
  EXPECT_EQ(stats.AcceptanceRate(), 0.0);
  EXPECT_EQ(stats.AcceptanceAt(0), 0.0);
  EXPECT_EQ(stats.TokensPerRound(), 0.0);
  stats.Add(DraftSource::kModel, 4, 2, 3);
  stats.Add(DraftSource::kModel, 4, 4, 5);
  stats.Add(DraftSource::kModel, 0, 0, 1);
  stats.Add(DraftSource::kLookup, 2, 1, 1);  // a stop condition cut the round short
  EXPECT_EQ(stats.Of(DraftSource::kModel), (RoundStats::SourceCounts{8, 6}));
  EXPECT_EQ(stats.Of(DraftSource::kLookup), (RoundStats::SourceCounts{2, 1}));
  EXPECT_EQ(stats.Of(DraftSource::kMemory), RoundStats::SourceCounts());
  EXPECT_EQ(stats.rounds, 4);
  EXPECT_EQ(stats.proposed, 10);
  EXPECT_EQ(stats.accepted, 7);
  EXPECT_EQ(stats.emitted, 10);
  EXPECT_EQ(stats.AcceptanceRate(), 0.7);
  EXPECT_EQ(stats.TokensPerRound(), 2.5);
  EXPECT_EQ(stats.AcceptanceAt(0), 1.0);
  EXPECT_EQ(stats.AcceptanceAt(1), 2.0 / 3.0);
  EXPECT_EQ(stats.AcceptanceAt(3), 0.5);
  EXPECT_EQ(stats.AcceptanceAt(4), 0.0);
}

TEST(RoundsByLength, CountsRounds) {
  RoundsByLength rounds;
  rounds.Add(4, 2);
  rounds.Add(4, 4);
  rounds.Add(0, 0);
  rounds.Add(2, 1);
  EXPECT_EQ(rounds.counts[0][0], 1);
  EXPECT_EQ(rounds.counts[2][1], 1);
  EXPECT_EQ(rounds.counts[4][2], 1);
  EXPECT_EQ(rounds.counts[4][4], 1);
}

TEST(RoundStats, AddUp) {
  RoundStats one;
  one.Add(DraftSource::kForced, kMaxDraftTokens, kMaxDraftTokens, kMaxDraftTokens + 1);
  one.draft_failures = 2;
  one.probes = 3;
  one.probe_time = absl::Seconds(4);
  one.prefill_time = absl::Seconds(1);
  one.draft_time = absl::Seconds(2);
  one.verify_time = absl::Seconds(3);
  RoundStats sum = one;
  sum += one;
  EXPECT_EQ(sum.rounds, 2);
  EXPECT_EQ(sum.proposed, 2 * kMaxDraftTokens);
  EXPECT_EQ(sum.accepted, 2 * kMaxDraftTokens);
  EXPECT_EQ(sum.emitted, 2 * kMaxDraftTokens + 2);
  EXPECT_EQ(sum.proposed_at[kMaxDraftTokens - 1], 2);
  EXPECT_EQ(sum.accepted_at[kMaxDraftTokens - 1], 2);
  EXPECT_EQ(sum.Of(DraftSource::kForced),
            (RoundStats::SourceCounts{2 * kMaxDraftTokens, 2 * kMaxDraftTokens}));
  EXPECT_EQ(sum.draft_failures, 4);
  EXPECT_EQ(sum.probes, 6);
  EXPECT_EQ(sum.probe_time, absl::Seconds(8));
  EXPECT_EQ(sum.prefill_time, absl::Seconds(2));
  EXPECT_EQ(sum.draft_time, absl::Seconds(4));
  EXPECT_EQ(sum.verify_time, absl::Seconds(6));
}

}  // namespace
}  // namespace tandem
