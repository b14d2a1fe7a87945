#include "engine/session.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

class Times : public ::testing::Test {
 protected:
  Instant At(int ms) const { return start_ + ms * kMs; }

  const Instant start_ = Instant::Now();
  SessionTimes times_{start_};
};

void ExpectPartsAddUp(const Timings& t) {
  EXPECT_EQ(t.queue + t.prompt + t.decode(), t.end_to_end);
  EXPECT_EQ(t.draft + t.verify + t.other(), t.decode());
}

// Row 153 of the bug catalogue: the pass that completes a prompt counts as reading it.
TEST_F(Times, ThePassThatCompletesThePromptBelongsToThePrompt) {
  times_.OnPlace(At(5));
  times_.OnRound(/*draft=*/2 * kMs, /*pass=*/20 * kMs, At(30), /*completes=*/true);
  EXPECT_TRUE(times_.has_read_prompt());
  times_.OnFirstToken(At(31));
  const Timings t = times_.Until(At(31));
  EXPECT_EQ(t.queue, 5 * kMs);
  EXPECT_EQ(t.prompt, 25 * kMs);
  EXPECT_EQ(t.all_prompts, t.prompt);
  EXPECT_EQ(t.time_to_first_token, 31 * kMs);
  EXPECT_EQ(t.draft, absl::ZeroDuration());
  EXPECT_EQ(t.verify, absl::ZeroDuration());
  EXPECT_EQ(t.other(), 1 * kMs);
  ExpectPartsAddUp(t);
}

// States are read after the pass, so even those of the pass that completes the prompt belong to the
// decode span.
TEST_F(Times, ReadingStatesCountsAsDrafting) {
  times_.OnPlace(At(5));
  times_.OnRound(absl::ZeroDuration(), 20 * kMs, At(30), /*completes=*/false);
  times_.OnStatesRead(2 * kMs);
  times_.OnRound(absl::ZeroDuration(), 20 * kMs, At(55), /*completes=*/true);
  times_.OnStatesRead(3 * kMs);
  times_.OnRound(4 * kMs, 10 * kMs, At(75), /*completes=*/true);
  times_.OnStatesRead(1 * kMs);
  const Timings t = times_.Until(At(80));
  EXPECT_EQ(t.prompt, 50 * kMs);
  EXPECT_EQ(t.draft, 8 * kMs);
  EXPECT_EQ(t.verify, 10 * kMs);
  ExpectPartsAddUp(t);
}

// Row 154 of the bug catalogue.
TEST_F(Times, PartsAddUpToTheWhole) {
  times_.OnPlace(At(5));
  times_.OnRound(1 * kMs, 20 * kMs, At(30), /*completes=*/false);
  times_.OnRound(1 * kMs, 20 * kMs, At(55), /*completes=*/true);
  times_.OnFirstToken(At(56));
  times_.OnRound(3 * kMs, 10 * kMs, At(75), /*completes=*/true);
  // Preempted, and read again: it was admitted before, and its prompt is already complete.
  times_.OnPlace(At(100));
  times_.OnRound(absl::ZeroDuration(), 7 * kMs, At(110), /*completes=*/false);
  times_.OnRound(4 * kMs, 11 * kMs, At(130), /*completes=*/true);
  const Timings t = times_.Until(At(133));
  EXPECT_EQ(t.end_to_end, 133 * kMs);
  EXPECT_EQ(t.queue, 5 * kMs);
  EXPECT_EQ(t.prompt, 50 * kMs);
  EXPECT_EQ(t.decode(), 78 * kMs);
  EXPECT_EQ(t.draft, 7 * kMs);
  EXPECT_EQ(t.verify, 28 * kMs);
  EXPECT_EQ(t.other(), 43 * kMs);
  ExpectPartsAddUp(t);
}

TEST_F(Times, UnfinishedSpansLastUntilTheEnd) {
  Timings t = times_.Until(At(9));
  EXPECT_EQ(t.queue, 9 * kMs);
  ExpectPartsAddUp(t);
  times_.OnPlace(At(10));
  times_.OnRound(1 * kMs, 2 * kMs, At(15), /*completes=*/false);
  t = times_.Until(At(20));
  EXPECT_EQ(t.queue, 10 * kMs);
  EXPECT_EQ(t.prompt, 10 * kMs);
  EXPECT_EQ(t.decode(), absl::ZeroDuration());
  ExpectPartsAddUp(t);
}

TEST(CompletionRates, LeaveOutCachedTokensTheFirstRoundAndWaiting) {
  Completion completion;
  EXPECT_EQ(completion.PromptTokensPerSecond(), 0.0);
  EXPECT_EQ(completion.DecodeTokensPerSecond(), 0.0);
  EXPECT_EQ(completion.TokensPerSecond(), 0.0);
  completion.prompt_tokens = 900;
  completion.cached_tokens = 800;
  completion.first_round_tokens = 3;
  completion.token_ids.resize(23);
  completion.timings.queue = absl::Seconds(90);
  completion.timings.prompt = absl::Seconds(2);
  completion.timings.all_prompts = absl::Seconds(2);
  completion.timings.end_to_end = absl::Seconds(96);
  EXPECT_EQ(completion.PromptTokensPerSecond(), 50.0);
  EXPECT_EQ(completion.DecodeTokensPerSecond(), 5.0);
  EXPECT_DOUBLE_EQ(completion.TokensPerSecond(), 23.0 / 6);
}

}  // namespace
}  // namespace tandem
