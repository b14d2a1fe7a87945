#include "tools/bench/bench_speculation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/status_macros.h"
#include "engine/stub_engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr absl::Duration kPrompt = absl::Milliseconds(40);  // for the target to read a prompt
constexpr absl::Duration kDraftPrompt = absl::Milliseconds(7);
constexpr absl::Duration kVerify = absl::Milliseconds(6);  // for any number of rows
constexpr absl::Duration kDraftStep = absl::Milliseconds(2);
constexpr absl::Duration kOther = absl::Milliseconds(1);

// An engine with known costs that accepts `accepted` draft tokens in every round.
class FakeEngine : public StubEngine {
 public:
  explicit FakeEngine(int accepted) : accepted_(accepted) {}

  absl::StatusOr<GenerationId> Submit(Request request, OnPiece, OnDone) override {
    requests.push_back(request);
    if (request.prompt == "bad") return absl::InvalidArgumentError("prompt: bad");
    waiting_[next_id_] = std::move(request);
    max_waiting = std::max(max_waiting, waiting_.size());
    return next_id_++;
  }

  absl::StatusOr<Completion> Wait(GenerationId id, absl::Duration) override {
    if (num_timeouts > 0) {
      --num_timeouts;
      return absl::DeadlineExceededError("");
    }
    const Request request = std::move(waiting_.at(id));
    waiting_.erase(id);
    Completion completion;
    Timings& t = completion.timings;
    const int proposed_at_most = std::max(0, *request.draft_tokens);
    while (completion.token_ids.size() < static_cast<size_t>(request.max_tokens)) {
      const int wanted = request.max_tokens - static_cast<int>(completion.token_ids.size());
      const int proposed = std::min(proposed_at_most, wanted - 1);
      const int accepted = std::min(proposed, accepted_);
      const bool is_first = completion.token_ids.empty();
      if (is_first) {
        completion.stats.prefill_time = kVerify + kPrompt;
      } else {
        completion.stats.verify_time += kVerify;
      }
      if (proposed > 0) {
        completion.stats.draft_time +=
            kDraftStep * proposed + (is_first ? kDraftPrompt : absl::ZeroDuration());
      }
      completion.stats.Add(DraftSource::kModel, proposed, accepted, accepted + 1);
      completion.token_ids.insert(completion.token_ids.end(), accepted + 1, proposed_token);
      const RoundStats& stats = completion.stats;
      t.end_to_end =
          stats.prefill_time + stats.verify_time + stats.draft_time + kOther * stats.rounds;
      if (!is_first) continue;
      t.time_to_first_token = t.end_to_end;
      completion.first_round_tokens = accepted + 1;
    }
    if (proposed_at_most > 0) completion.token_ids.back() += last_token_difference;
    return completion;
  }

  void Cancel(GenerationId) override { ++num_cancelled; }

  std::vector<Request> requests;
  size_t max_waiting = 0;
  int num_cancelled = 0;
  int num_timeouts = 0;  // of later calls of Wait
  TokenId proposed_token = 5;
  TokenId last_token_difference = 0;

 private:
  const int accepted_;
  GenerationId next_id_ = 1;
  std::map<GenerationId, Request> waiting_;
};

SpeculationBenchmarkOptions ThreePrompts() {
  SpeculationBenchmarkOptions options;
  options.prompts = {{.text = "a", .ids = {}}, {.text = "", .ids = {1}}, {.text = "c", .ids = {}}};
  options.draft_tokens = {4};
  options.batches = {1};
  options.max_tokens = 61;
  options.repeat = 3;
  return options;
}

SpeculationCallbacks NoCallbacks() {
  return {.before_group = [](int, int) { return absl::OkStatus(); },
          .check = [] { return absl::OkStatus(); },
          .on_run = [](const SpeculationRun&) {}};
}

absl::StatusOr<SpeculationBenchmark> RunAll(const SpeculationBenchmarkOptions& options,
                                            Engine* engine) {
  SpeculationBenchmark result;
  RETURN_IF_ERROR(RunSpeculationBenchmark(options, engine, NoCallbacks(), &result));
  return result;
}

TEST(BenchSpeculation, FindsTheCostOfEveryPartOfARound) {
  FakeEngine engine(/*accepted=*/2);
  const auto result = RunAll(ThreePrompts(), &engine);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_THAT(result->runs, SizeIs(1));
  const SpeculationRun& run = result->runs[0];
  // 61 tokens: 19 rounds with 4 proposed tokens and one with the 3 that can still be used, of which
  // 2 are accepted in each, and a last round without a draft.
  EXPECT_DOUBLE_EQ(run.acceptance_rate, 40.0 / 79);
  EXPECT_DOUBLE_EQ(run.tokens_per_round, 61.0 / 21);
  EXPECT_DOUBLE_EQ(run.drafted_per_round, 79.0 / 21);
  EXPECT_NEAR(run.plain_step_ms, 7.0, 1e-9);
  EXPECT_NEAR(run.draft_step_ms, 2.0, 1e-9);
  EXPECT_NEAR(run.verify_ms, 6.0, 1e-9);
  EXPECT_NEAR(run.other_ms, 1.0, 1e-9);
  EXPECT_NEAR(run.cost_ratio(), 2.0 / 7, 1e-9);
  EXPECT_NEAR(run.predicted_ratio(), 61.0 / 21 / (1 + 79.0 / 21 * 2 / 7), 1e-9);
  EXPECT_NEAR(result->plain->step_ms, 7.0, 1e-9);
  // After the first round 58 tokens in 18 rounds of 8 + 7 ms, one of 6 + 7 and one of 7: 5 ms each.
  EXPECT_NEAR(run.decode_ratio.median, 7.0 / 5.0, 1e-9);
  EXPECT_EQ(run.identical, true);
}

TEST(BenchSpeculation, ReportsDifferentTokens) {
  FakeEngine engine(/*accepted=*/2);
  engine.last_token_difference = 1;
  const auto result = RunAll(ThreePrompts(), &engine);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->runs[0].identical, false);
  // With synthetic acceptance the tokens are not compared.
  SpeculationBenchmarkOptions tossed = ThreePrompts();
  tossed.synthetic_acceptance = 0.5;
  const auto unjudged = RunAll(tossed, &engine);
  ASSERT_TRUE(unjudged.ok());
  EXPECT_EQ(unjudged->runs[0].identical, std::nullopt);
}

TEST(BenchSpeculation, RunsFullGroupsInPairsOfAlternatingOrder) {
  FakeEngine engine(/*accepted=*/2);
  SpeculationBenchmarkOptions options = ThreePrompts();
  options.batches = {2};
  options.draft_tokens = {kAutoDraftTokens, 3};
  options.temperature = 0.5f;
  options.repeat = 2;
  int64_t num_groups = 0;
  SpeculationCallbacks callbacks = NoCallbacks();
  callbacks.before_group = [&](int, int) {
    ++num_groups;
    return absl::OkStatus();
  };
  // The fake engine treats auto as no draft.
  SpeculationBenchmark result;
  ASSERT_TRUE(RunSpeculationBenchmark(options, &engine, callbacks, &result).ok());
  EXPECT_EQ(num_groups, NumGroups(options));
  EXPECT_EQ(engine.max_waiting, 2u);
  std::vector<int> order;
  for (const Request& request : engine.requests) {
    EXPECT_TRUE(request.ignore_eos);
    EXPECT_EQ(request.sampling.temperature, 0.5f);
    EXPECT_FALSE(request.seed.has_value());
    if (request.prompt == "c" && request.max_tokens == options.max_tokens) {
      order.push_back(*request.draft_tokens);
    }
  }
  // A warm-up pass, two repetitions of a pair for each k (in reverse order the first time, because
  // prompt c is in the second group), and two plain passes at batch 1.
  EXPECT_THAT(order, ElementsAre(0, 3, 0, -1, 0, 0, -1, 0, 3, 0, 0));
}

TEST(BenchSpeculation, ErrorCancelsTheOtherGenerations) {
  FakeEngine engine(/*accepted=*/2);
  SpeculationBenchmarkOptions options = ThreePrompts();
  options.batches = {3};
  options.prompts[2].text = "bad";
  const auto result = RunAll(options, &engine);
  EXPECT_EQ(result.status().message(), "prompt: bad");
  options.prompts = {options.prompts[0], options.prompts[1]};
  EXPECT_TRUE(RunAll(options, &engine).ok());
}

TEST(BenchSpeculation, AnErrorLeavesTheCompletePairs) {
  SpeculationBenchmarkOptions options = ThreePrompts();
  options.batches = {1, 3};
  for (const bool in_second_batch : {false, true}) {
    // Groups: 3 of the warm-up and one of the draft; 4 * 3 for each of 3 pairs at batch 1; 4 for
    // each pair at batch 3.
    int64_t left = 4 + 2 * 12 + 11;
    if (in_second_batch) left = 4 + 3 * 12 + 4 + 3;
    FakeEngine engine(/*accepted=*/2);
    std::vector<int> pairs_told;
    SpeculationCallbacks callbacks = NoCallbacks();
    callbacks.before_group = [&](int, int) {
      return left-- > 0 ? absl::OkStatus() : absl::CancelledError("stopped");
    };
    callbacks.on_run = [&](const SpeculationRun& run) { pairs_told.push_back(run.num_pairs); };
    SpeculationBenchmark result;
    const absl::Status status = RunSpeculationBenchmark(options, &engine, callbacks, &result);
    EXPECT_EQ(status.message(), "stopped");
    ASSERT_TRUE(result.plain.has_value());
    EXPECT_NEAR(result.plain->step_ms, 7.0, 1e-9);
    ASSERT_THAT(result.runs, SizeIs(in_second_batch ? 2 : 1));
    EXPECT_EQ(result.runs[0].num_pairs, in_second_batch ? 3 : 2);
    EXPECT_EQ(result.runs.back().num_pairs, pairs_told.back());
    EXPECT_EQ(result.runs[0].identical, true);
    EXPECT_EQ(pairs_told.size(), result.runs.size());
  }
}

TEST(BenchSpeculation, ACheckCancelsTheGroup) {
  FakeEngine engine(/*accepted=*/2);
  engine.num_timeouts = 1;
  SpeculationCallbacks callbacks = NoCallbacks();
  callbacks.check = [] { return absl::CancelledError("stopped"); };
  SpeculationBenchmark result;
  const absl::Status status = RunSpeculationBenchmark(ThreePrompts(), &engine, callbacks, &result);
  EXPECT_EQ(status.message(), "stopped");
  EXPECT_EQ(engine.num_cancelled, 1);
  EXPECT_THAT(result.runs, SizeIs(0));
  EXPECT_FALSE(result.plain.has_value());
}

constexpr int kSyntheticVocab = 50;

// Judges a draft of `tokens`. Row `slot` of the target is greedy, with token 20 + slot.
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

TEST(SyntheticJudge, AcceptsAtTheGivenRateWhateverTheTokens) {
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
    // A round has 1 to 5 tokens, so the standard deviation is at most 2 and that of the mean at
    // most 2 / sqrt(20000) = 0.0142. The tolerance is five of these.
    EXPECT_NEAR(static_cast<double>(tokens) / kRounds, ExpectedTokensPerRound(acceptance, kDrafted),
                5 * 0.0142);
  }
}

TEST(SyntheticJudge, RejectsTokensOutsideOfTheTargetsVocabulary) {
  int num_rows = 0;
  EXPECT_EQ(JudgeOnce(SyntheticJudge(1.0, kSyntheticVocab), {1, kSyntheticVocab, 2}, 9, &num_rows)
                .num_accepted,
            1);
  EXPECT_EQ(num_rows, 2);
  EXPECT_EQ(JudgeOnce(SyntheticJudge(1.0, kSyntheticVocab), {-1}, 9, &num_rows).num_accepted, 0);
}

TEST(SyntheticJudge, ExpectedTokensAreAGeometricSeries) {
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(0.8, 4), (1 - std::pow(0.8, 5)) / 0.2);
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(1.0, 3), 4.0);
  EXPECT_DOUBLE_EQ(ExpectedTokensPerRound(0.0, 3), 1.0);
}

}  // namespace
}  // namespace tandem
