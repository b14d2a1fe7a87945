#include "tools/plain_comparison.h"

#include <string>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "engine/stub_engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

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
    const Outcome outcome = outcomes.at(speculates.size() - 1);
    clock_.Advance(absl::Milliseconds(outcome.ms));
    Completion completion;
    completion.token_ids.assign(10, last_token);
    completion.stats.Add(DraftSource::kModel, speculates.back() ? 4 : 0, outcome.accepted, 10);
    completion.timings.end_to_end = absl::Milliseconds(outcome.ms);
    return completion;
  }

  std::vector<Outcome> outcomes;
  std::vector<bool> speculates;  // per submission
  TokenId last_token = 5;

 private:
  FakeClock clock_;
};

// An uncounted plain run, then three pairs: plain first, speculative first, plain first.
std::vector<Outcome> SevenRuns() {
  return {{9000, 0}, {200, 0}, {100, 2}, {25, 3}, {100, 0}, {400, 0}, {200, 1}};
}

Completion TenTokens(TokenId token) {
  Completion completion;
  completion.token_ids.assign(10, token);
  return completion;
}

// Row 156 of the bug catalogue.
TEST(PlainComparison, AllFiguresComeFromTheSameWarmRuns) {
  ScriptedEngine engine;
  engine.outcomes = SevenRuns();
  const Completion first = TenTokens(5);
  const auto found = CompareWithPlain(&engine, {Request()}, {&first, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(engine.speculates, ElementsAre(false, false, true, true, false, false, true));
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

  nlohmann::json json;
  AddToJson(*found, 0, &json);
  EXPECT_EQ(json["plain"]["timings"]["e2e_ms"], 200);
  EXPECT_EQ(json["plain"]["tokens_per_second"], 50);
  EXPECT_EQ(json["speedup"], 2);
  EXPECT_EQ(json["identical"], true);
  EXPECT_EQ(json["compared"]["runs"], 3);
  EXPECT_EQ(json["compared"]["speedup_spread"], nlohmann::json({2, 4}));
  EXPECT_EQ(json["compared"]["acceptance_rate_spread"], nlohmann::json({0.25, 0.75}));
  EXPECT_THAT(ToText(*found),
              HasSubstr("100 tokens/s (50 to 400) with speculation, 50 (25 to 100) plain"));
  EXPECT_THAT(ToText(*found), HasSubstr("speed-up    2.00 (2.00 to 4.00)\n"));
  EXPECT_THAT(ToText(*found), HasSubstr("acceptance  50 % (25 to 75)\n"));
}

TEST(PlainComparison, ReportsDifferentTokens) {
  ScriptedEngine engine;
  engine.outcomes = SevenRuns();
  const Completion first = TenTokens(6);
  const auto found = CompareWithPlain(&engine, {Request()}, {&first, 1});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->identical);
  EXPECT_THAT(ToText(*found), HasSubstr("identical: false\n"));
}

TEST(PlainComparison, ReportsABusyMachine) {
  PlainComparison comparison;
  comparison.others.share = 0.37;
  EXPECT_THAT(ToText(comparison), Not(HasSubstr("busy")));
  comparison.others.is_disturbing = true;
  EXPECT_THAT(ToText(comparison), HasSubstr("busy        other programs took 37 %"));
}

}  // namespace
}  // namespace tandem
