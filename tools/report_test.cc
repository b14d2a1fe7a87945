#include "tools/report.h"

#include <cstdlib>
#include <string>

#include "engine/stub_engine_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(ThreeDigits, RoundsToThreeDigitsAndSeparatesThousands) {
  EXPECT_EQ(ThreeDigits(0), "0");
  EXPECT_EQ(ThreeDigits(0.0000123), "0");
  EXPECT_EQ(ThreeDigits(0.00536), "0.005");
  EXPECT_EQ(ThreeDigits(0.2714), "0.271");
  EXPECT_EQ(ThreeDigits(0.9996), "1");
  EXPECT_EQ(ThreeDigits(50), "50");
  EXPECT_EQ(ThreeDigits(99.96), "100");
  EXPECT_EQ(ThreeDigits(483.6), "484");
  EXPECT_EQ(ThreeDigits(999.6), "1,000");
  EXPECT_EQ(ThreeDigits(1987.4), "1,987");
  EXPECT_EQ(ThreeDigits(1234567), "1,234,567");
}

TEST(PercentOf, IncludesTheCounts) {
  EXPECT_EQ(PercentOf(26, 35), "74.3 % (26 of 35)");
  EXPECT_EQ(PercentOf(3, 3), "100 % (3 of 3)");
  EXPECT_EQ(PercentOf(0, 0), "0 % (0 of 0)");
}

class ReportedEngine : public StubEngine {
 public:
  ModelInfo target_info() const override {
    ModelInfo info;
    info.path = "story";
    info.family = "llama";
    info.dtype = "f32";
    info.parameters = 7'000'000;
    info.kv_cache = "bf16";
    return info;
  }
  DrafterKind drafter() const override { return DrafterKind::kNone; }
  std::string device_description() const override { return "1 thread"; }
};

constexpr char kModels[] =
    "target      story: llama, 7.0 million parameters, f32, cache of bf16\n"
    "device      1 thread\n";

Completion Answer() {
  Completion completion;
  completion.prompt_tokens = 961;
  completion.first_round_tokens = 1;
  completion.token_ids.resize(20);
  completion.finish_reason = FinishReason::kLength;
  completion.stats.Add(DraftSource::kModel, 0, 0, 20);
  Timings& t = completion.timings;
  t.time_to_first_token = absl::Milliseconds(1988);
  t.end_to_end = absl::Milliseconds(1987 + 380);
  t.prompt = t.all_prompts = absl::Milliseconds(1987);
  t.draft = absl::Milliseconds(40);
  t.verify = absl::Milliseconds(330);
  return completion;
}

// Row 153 of the bug catalogue: the time of a prompt with a single pass was reported as 0.
TEST(TextReport, HasTheTimesOfPromptAndAnswer) {
  EXPECT_EQ(TextReport(ReportedEngine(), Answer()),
            std::string(kModels) +
                "prompt      961 tokens in 1,987 ms (484 tokens/s)\n"
                "answer      20 tokens at 50 tokens/s, ended by length\n"
                "rounds      1, without a draft\n"
                "time        2,367 ms end to end: prompt 1,987 ms, draft 40 ms, verification 330 "
                "ms, other 10 ms\n"
                "            first token after 1,988 ms, then 19.9 ms per token\n");
}

TEST(TextReport, PrintsCountsNextToPercentages) {
  Completion completion = Answer();
  completion.cached_tokens = 900;
  completion.token_ids.resize(1);
  completion.stats = RoundStats();
  completion.stats.Add(DraftSource::kModel, 2, 1, 2);
  completion.stats.Add(DraftSource::kLookup, 1, 1, 2);
  completion.idle_reason = "draft idle in 3 of 5 rounds";
  Timings& t = completion.timings;
  t = Timings();
  t.time_to_first_token = t.end_to_end = absl::Milliseconds(130);
  t.queue = absl::Milliseconds(8);
  t.prompt = t.all_prompts = absl::Milliseconds(122);
  EXPECT_EQ(TextReport(ReportedEngine(), completion),
            std::string(kModels) +
                "prompt      961 tokens, 900 cached, 61 read in 122 ms (500 tokens/s)\n"
                "answer      1 token, ended by length\n"
                "acceptance  66.7 % (2 of 3): model 1 of 2, lookup 1 of 1, rule exact_match\n"
                "by position 100 % (2 of 2), 0 % (0 of 1)\n"
                "rounds      2, 2.00 tokens per round\n"
                "draft idle in 3 of 5 rounds\n"
                "time        130 ms end to end: waiting 8 ms, prompt 122 ms, draft 0 ms, "
                "verification 0 ms, other 0 ms\n"
                "            first token after 130 ms, then 0 ms per token\n");
}

TEST(BatchReport, SumsUpAnswersThatRanTogether) {
  EXPECT_EQ(BatchReport(ReportedEngine(), Answer(), 3, absl::Milliseconds(500)),
            std::string(kModels) +
                "prompts     3, of 961 tokens (0 cached)\n"
                "answers     20 tokens in 500 ms (40 tokens/s), reading the prompts included\n"
                "rounds      1, without a draft\n");
}

}  // namespace
}  // namespace tandem
