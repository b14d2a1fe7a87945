#include "tools/plain_comparison.h"

#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "engine/stub_engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int ms;
  int accepted;  // of 4 draft tokens
};

// Gives answers of ten tokens that take as long as the test says, on a fake clock.
class ScriptedEngine : public StubEngine {
 public:
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece, OnDone) override {
    speculates.push_back(request.draft_tokens != 0);
    return 1;
  }
  absl::StatusOr<Completion> Wait(GenerationId, absl::Duration) override {
    const bool is_warm_up = speculates.size() <= 4;
    int& next = next_[speculates.back() ? 1 : 0];
    const std::vector<Outcome>& outcomes = speculates.back() ? speculative : plain;
    const Outcome outcome = is_warm_up ? Outcome{9000, 0} : outcomes[next++ % outcomes.size()];
    clock_.Advance(absl::Milliseconds(outcome.ms));
    Completion completion;
    completion.token_ids.assign(10, last_token);
    completion.stats.Add(DraftSource::kModel, speculates.back() ? 4 : 0, outcome.accepted, 10);
    completion.timings.end_to_end = absl::Milliseconds(outcome.ms);
    return completion;
  }

  // Outcomes of the compared runs, in turn.
  std::vector<Outcome> plain = {{200, 0}, {100, 0}, {400, 0}};
  std::vector<Outcome> speculative = {{100, 2}, {25, 3}, {200, 1}};
  std::vector<bool> speculates;  // per submission
  TokenId last_token = 5;

 private:
  int next_[2] = {0, 0};
  FakeClock clock_;
};

Completion TenTokens(TokenId token) {
  Completion completion;
  completion.token_ids.assign(10, token);
  return completion;
}

// Row 156 of the bug catalogue.
TEST(PlainComparison, AllFiguresComeFromTheSameWarmRuns) {
  ScriptedEngine engine;
  const Completion first = TenTokens(5);
  const auto found = CompareWithPlain(&engine, {Request()}, {&first, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  // Four warm-ups, then pairs in alternating order. The speed-ups never agree, so there are nine.
  ASSERT_EQ(engine.speculates.size(), 4 + 2 * 9);
  engine.speculates.resize(4 + 2 * 3);
  EXPECT_THAT(engine.speculates,
              ElementsAre(false, true, true, true, false, true, true, false, false, true));
  EXPECT_EQ(found->plain_tokens_per_second.median, 50);
  EXPECT_EQ(found->plain_tokens_per_second.low, 25);
  EXPECT_EQ(found->plain_tokens_per_second.high, 100);
  EXPECT_EQ(found->tokens_per_second.median, 100);
  EXPECT_EQ(found->tokens_per_second.low, 50);
  EXPECT_EQ(found->tokens_per_second.high, 400);
  EXPECT_EQ(found->acceptance_rate.median, 0.5);
  EXPECT_EQ(found->acceptance_rate.low, 0.25);
  EXPECT_EQ(found->acceptance_rate.high, 0.75);
  // The ratios of successive runs: 200 / 100, 100 / 25 and 400 / 200.
  EXPECT_EQ(found->speedup.median, 2);
  EXPECT_EQ(found->speedup.low, 2);
  EXPECT_EQ(found->speedup.high, 4);
  EXPECT_TRUE(found->identical);
  EXPECT_EQ(found->plain.time, absl::Milliseconds(200));
  EXPECT_EQ(found->speculative.time, absl::Milliseconds(100));
  EXPECT_EQ(found->speculative.completions[0].stats.accepted, 2);

  SortedJson json;
  AddToJson(*found, 0, &json);
  EXPECT_EQ(json["plain"]["timings"]["e2e_ms"], 200);
  EXPECT_EQ(json["plain"]["tokens_per_second"], 50);
  EXPECT_EQ(json["speedup"], 2);
  EXPECT_EQ(json["identical"], true);
  EXPECT_EQ(json["compared"]["runs"], 9);
  EXPECT_EQ(json["compared"]["speedup_spread"], SortedJson({2, 4}));
  EXPECT_EQ(json["compared"]["acceptance_rate_spread"], SortedJson({0.25, 0.75}));
  EXPECT_THAT(ToText(*found),
              HasSubstr("100 tokens/s (50 to 400) with speculation, 50 (25 to 100) plain"));
  EXPECT_THAT(ToText(*found), HasSubstr("speed-up    2.00 (2.00 to 4.00)\n"));
  EXPECT_THAT(ToText(*found), HasSubstr("acceptance  50 % (25 to 75)\n"));
}

TEST(PlainComparison, ReportsDifferentTokens) {
  ScriptedEngine engine;
  const Completion first = TenTokens(6);
  const auto found = CompareWithPlain(&engine, {Request()}, {&first, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->identical);
  EXPECT_THAT(ToText(*found), HasSubstr("identical: false\n"));
}

TEST(PlainComparison, ThreePairsThatAgreeAreEnough) {
  ScriptedEngine engine;
  engine.plain = {{200, 0}};
  engine.speculative = {{100, 2}, {105, 2}};
  const Completion first = TenTokens(5);
  const auto found = CompareWithPlain(&engine, {Request()}, {&first, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(engine.speculates.size(), 4 + 2 * 3);
  EXPECT_EQ(found->num_pairs, 3);
}

ComparedPair PairOf(int plain_ms, int speculative_ms, double share_of_others, bool is_disturbed) {
  const auto run = [](int ms) {
    return PlainComparison::Run{.completions = {TenTokens(5)}, .time = absl::Milliseconds(ms)};
  };
  return {.plain = run(plain_ms),
          .speculative = run(speculative_ms),
          .others = {.share = share_of_others, .is_disturbing = is_disturbed}};
}

TEST(PlainComparison, DisturbedPairsAreRepeatedAndNotCounted) {
  const ComparedPair calm = PairOf(200, 100, 0.02, false), busy = PairOf(200, 400, 0.6, true);
  const absl::Duration early = absl::Seconds(1), late = absl::Seconds(30);
  EXPECT_TRUE(NeedsAnotherPair({calm, calm}, late));
  EXPECT_FALSE(NeedsAnotherPair({calm, calm, calm}, early));
  EXPECT_TRUE(NeedsAnotherPair({calm, busy, calm}, early));
  EXPECT_FALSE(NeedsAnotherPair({calm, busy, calm}, late));
  EXPECT_FALSE(NeedsAnotherPair({calm, busy, calm, busy, calm}, early));
  EXPECT_TRUE(NeedsAnotherPair({calm, calm, PairOf(200, 111, 0.0, false)}, early));

  const Completion first = TenTokens(5);
  const PlainComparison counted = Summarise({calm, busy, calm, busy, calm}, {&first, 1});
  EXPECT_FALSE(counted.others.is_disturbing);
  EXPECT_EQ(counted.num_pairs, 3);
  EXPECT_EQ(counted.speedup.low, 2);
  EXPECT_DOUBLE_EQ(*counted.others.share, 0.02);
}

TEST(PlainComparison, GivesNoFigureForABusyMachine) {
  const ComparedPair busy = PairOf(200, 400, 0.37, true);
  const Completion first = TenTokens(5);
  const PlainComparison comparison = Summarise({busy, busy, busy}, {&first, 1});
  EXPECT_TRUE(comparison.others.is_disturbing);
  EXPECT_THAT(ToText(comparison),
              AllOf(HasSubstr("no figure: other programs took 37 % of the processors' time"),
                    HasSubstr("identical: true"), Not(HasSubstr("0.50"))));
  SortedJson json;
  AddToJson(comparison, 0, &json);
  EXPECT_EQ(json["speedup"], 0.5);
  EXPECT_EQ(json["compared"]["disturbed"], true);
}

}  // namespace
}  // namespace tandem
