#include "engine/report_json.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tandem/draft_tokens.h"

namespace tandem {
namespace {

Completion WithDraftTokens(int draft_tokens) {
  Completion completion;
  completion.draft_tokens = draft_tokens;
  return completion;
}

void AddRound(int proposed, int accepted, Completion* completion) {
  completion->stats.Add(DraftSource::kModel, proposed, accepted, accepted + 1);
  completion->rounds_by_length.Add(proposed, accepted);
}

// The example of vLLM's documents: 43 steps of 3 draft tokens.
TEST(MetricsJson, HasVllmsCounts) {
  Completion completion = WithDraftTokens(3);
  const int steps[] = {39, 1, 0, 3};
  for (int accepted = 0; accepted < 4; ++accepted) {
    for (int i = 0; i < steps[accepted]; ++i) AddRound(3, accepted, &completion);
  }
  AddRound(0, 0, &completion);  // not a step
  const JsonValue counts = MetricsJson(completion)["speculative_decoding"];
  EXPECT_EQ(counts, JsonValue::parse(R"({"mean_acceptance_length": 1.2325581395348837,
      "draft_acceptance_rate": 0.07751937984496124, "acceptance_histogram": [39, 1, 0, 3],
      "acceptance_histogram_by_draft_length": {"3": [39, 1, 0, 3]}, "num_spec_steps": 43,
      "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3})"));
}

TEST(MetricsJson, SeparatesLengthsOfDrafts) {
  Completion completion = WithDraftTokens(kAutoDraftTokens);
  AddRound(1, 1, &completion);
  AddRound(2, 1, &completion);
  const JsonValue counts = MetricsJson(completion)["speculative_decoding"];
  EXPECT_EQ(counts["acceptance_histogram"], JsonValue({0, 2, 0}));
  EXPECT_EQ(counts["acceptance_histogram_by_draft_length"],
            JsonValue::parse(R"({"1": [0, 1], "2": [0, 1, 0]})"));
  EXPECT_EQ(counts["num_spec_tokens"], 2);
}

TEST(MetricsJson, CountsNothingWithoutDrafts) {
  Completion completion = WithDraftTokens(4);
  const JsonValue idle = MetricsJson(completion)["speculative_decoding"];
  EXPECT_EQ(idle["acceptance_histogram"], JsonValue({0, 0, 0, 0, 0}));
  EXPECT_EQ(idle["mean_acceptance_length"], 1.0);
  EXPECT_EQ(idle["draft_acceptance_rate"], 0.0);
  completion.draft_tokens = 0;
  EXPECT_EQ(MetricsJson(completion)["speculative_decoding"], nullptr);
}

TEST(MetricsJson, HasTimesOfTheSpansThatVllmMeans) {
  Completion completion;
  completion.token_ids = {1, 2, 3};
  completion.first_round_tokens = 1;
  completion.timings.time_to_first_token = absl::Milliseconds(30);
  completion.timings.end_to_end = absl::Milliseconds(50);
  completion.timings.queue = absl::Milliseconds(10);
  completion.timings.prompt = absl::Milliseconds(20);
  const JsonValue metrics = MetricsJson(completion);
  EXPECT_EQ(metrics["queue_time_ms"], 10);
  EXPECT_EQ(metrics["time_to_first_token_ms"], 20);
  EXPECT_EQ(metrics["generation_time_ms"], 20);
  EXPECT_EQ(metrics["mean_itl_ms"], 10);
  EXPECT_EQ(metrics["tokens_per_second"], 100);
}

}  // namespace
}  // namespace tandem
