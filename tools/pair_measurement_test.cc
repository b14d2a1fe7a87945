#include "tools/pair_measurement.h"

#include <iterator>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// An answer of 41 tokens, whose first round emits one of them. `accepted` of each draft are kept.
Completion AnswerOf(int draft_tokens, int accepted, absl::Duration draft, absl::Duration verify) {
  Completion completion;
  completion.draft_tokens = draft_tokens;
  completion.token_ids.assign(41, 1);
  completion.first_round_tokens = 1;
  for (int i = 0; i < 41; ++i) {
    completion.stats.Add(DraftSource::kModel, draft_tokens, accepted, accepted + 1);
  }
  Timings& t = completion.timings;
  t.draft = draft;
  t.verify = verify;
  t.end_to_end = draft + verify;
  return completion;
}

// A task on which plain decoding takes 400 ms and the draft lengths take `ms` each, of which the
// draft takes a quarter.
PairTask TaskOf(std::string name, std::initializer_list<int> ms, int accepted) {
  PairTask task{.name = std::move(name), .runs = {}};
  auto time = ms.begin();
  for (const int k : kPairLengths) {
    PairRun& run = task.runs.emplace_back();
    run.draft_tokens = k;
    const absl::Duration all = absl::Milliseconds(k == 0 ? 400 : *time++);
    const absl::Duration draft = k == 0 ? absl::ZeroDuration() : all / 4;
    run.Add(AnswerOf(k, std::min(k, accepted), draft, all - draft));
  }
  return task;
}

PairFindings FindingsOf(std::vector<PairTask> tasks, double bytes_ratio = 0.3) {
  return {.bytes_ratio = bytes_ratio, .tasks = std::move(tasks)};
}

TEST(PairFindings, ChoosesTheLengthThatIsBestOverAllTasks) {
  const PairFindings findings =
      FindingsOf({TaskOf("code", {320, 200, 250}, 1), TaskOf("prose", {400, 700, 800}, 1)});
  EXPECT_EQ(findings.Best(), 1u);
  EXPECT_DOUBLE_EQ(findings.tasks[0].GainOf(2), 2.0);
  EXPECT_NEAR(findings.All().GainOf(1), 800.0 / 720, 1e-9);
  EXPECT_EQ(findings.Verdict(),
            "It pays: 1.11 times plain decoding with -k 1, from 1.00 (prose) to 1.25 (code); -k "
            "auto finds the length by itself.");
}

TEST(PairFindings, CostsAreInPlainPasses) {
  const PairFindings findings = FindingsOf({TaskOf("code", {600, 800, 960}, 0)});
  // 240 ms of drafts for 40 rounds of 6 steps; 600 ms of passes of 4 rows for 40 rounds.
  EXPECT_NEAR(findings.StepCost(), 1.0 / 10, 1e-9);
  EXPECT_NEAR(findings.RowCost(), 0.5 / 3, 1e-9);
  EXPECT_EQ(findings.Best(), 0u);
  EXPECT_EQ(findings.Verdict(),
            "It does not pay here: 0.00 of its first tokens are kept, so a step and a row together "
            "must cost less than that part of a plain pass, and they cost 0.27.");
}

// The same times of a draft that takes one step for all tokens of a round.
TEST(PairFindings, AParallelDraftTakesOneStepARound) {
  PairRun run;
  run.draft_tokens = 6;
  run.in_one_pass = true;
  Completion completion;
  completion.stats.rounds = 41;
  completion.stats.proposed = 246;
  run.Add(completion);
  EXPECT_EQ(run.num_steps, 40);
  run.in_one_pass = false;
  run.Add(completion);
  EXPECT_EQ(run.num_steps, 40 + 240);
}

TEST(PairFindings, SayWhereADraftCannotPay) {
  EXPECT_EQ(FindingsOf({TaskOf("code", {600, 800, 960}, 1)}, 1.5).Verdict(),
            "It cannot pay: a step of the draft reads 1.50 times the bytes of the target's pass.");
  EXPECT_THAT(FindingsOf({TaskOf("code", {405, 500, 600}, 1)}).Verdict(),
              StartsWith("It hardly changes the speed: 1.00 of its first tokens are kept"));
}

TEST(PairFindings, ReportFigures) {
  PairFindings findings = FindingsOf({TaskOf("code", {320, 200, 250}, 1)});
  findings.others = {.share = 0.5, .is_disturbing = true};
  const JsonValue json = findings.ToJson();
  EXPECT_EQ(json["best_draft_tokens"], 3);
  EXPECT_EQ(json["tasks"][0]["runs"][2]["gain"], 2.0);
  EXPECT_EQ(json["all"], json["tasks"][0]["runs"]);
  EXPECT_EQ(json["verdict"], findings.Verdict());
  EXPECT_EQ(json["disturbed"], true);
  EXPECT_EQ(json["share_of_others"], 0.5);
  EXPECT_TRUE(FindingsOf({}).ToJson()["verdict"].is_null());  // interrupted before the first answer
}

}  // namespace
}  // namespace tandem
