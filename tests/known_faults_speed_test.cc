// The bug catalogue (docs/bug_catalogue.md), section 8: causes that must not make speculation
// slower than plain decoding, counted in passes and on the test's own clock.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "draft/policy/speculation_policy.h"
#include "engine/scheduler.h"
#include "gtest/gtest.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

// ---- A machine whose costs are known ----

// Up to `free_rows` rows cost the target one unit of time; more rows cost proportionally more. A
// draft step costs `step` units, and a draft token is kept with probability `alpha`.
struct Costs {
  double free_rows = 8.0;
  double step = 0.1;
  double alpha = 0.7;
  double Pass(int rows) const { return std::max(1.0, rows / free_rows); }
};

struct Goodput {
  double seconds = 0.0;
  int64_t tokens = 0;
  int64_t proposed = 0;
  double speed() const { return static_cast<double>(tokens) / seconds; }
};

// Runs rounds of a batch whose draft lengths the policy chooses.
Goodput Decode(const Costs& machine, SpeculationPolicy* policy, int batch, int num_rounds,
               std::mt19937_64& random) {
  const std::vector<DraftOption> options = {
      {.source = DraftSource::kModel, .evidence = 0, .max_tokens = 32, .num_unread = 1}};
  std::vector<AcceptanceEstimate> own(batch);
  Goodput run;
  const Instant start = Instant::Now();
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<DraftCandidate> candidates;
    for (int i = 0; i < batch; ++i) {
      candidates.push_back({.options = options,
                            .draft_tokens = kAutoDraftTokens,
                            .room = 1000,
                            .num_wanted = 1000,
                            .own = &own[i],
                            .wider = &policy->unsalted().AcceptanceAt(1.0f)});
    }
    const std::vector<DraftChoice> choices = policy->Plan(candidates, 0);
    RoundCosts::Round measured;
    measured.num_rows = batch;
    const int64_t tokens_before = run.tokens;
    for (int i = 0; i < batch; ++i) {
      const int k = choices[i].num_tokens;
      run.proposed += k;
      ++run.tokens;
      if (k == 0) continue;
      measured.num_rows += k;
      measured.num_steps = std::max(measured.num_steps, k);
      ++measured.num_draft_sequences;
      int accepted = 0;
      while (accepted < k && std::uniform_real_distribution<double>()(random) < machine.alpha) {
        ++accepted;
      }
      run.tokens += accepted;
      own[i].Observe(options[0], k, accepted);
      policy->unsalted().ObserveAcceptance(1.0f, options[0], k, accepted);
    }
    measured.draft_time = absl::Seconds(machine.step * measured.num_steps);
    measured.verify_time = absl::Seconds(machine.Pass(measured.num_rows));
    run.seconds += absl::ToDoubleSeconds(measured.draft_time + measured.verify_time);
    measured.is_plain = measured.num_rows == batch;
    if (policy->measures()) policy->costs().Observe(measured);
    const Instant end = start + absl::Seconds(run.seconds);
    policy->EndRound({.num_tokens = static_cast<int>(run.tokens - tokens_before),
                      .start = end - measured.draft_time - measured.verify_time,
                      .end = end});
  }
  return run;
}

// Row 75. Except for the cost of probes, goodput is at least that of plain decoding in every batch.
// Drafts stop as the load rises, and return as it falls.
TEST(KnownFaults, DraftsStopUnderLoadAndReturn) {
  std::mt19937_64 random(1);
  const FakeClock clock;  // stands still
  const Costs machine;
  SpeculationPolicy policy;
  for (const int batch : {1, 2, 4, 8, 16, 32, 16, 8, 4, 2, 1}) {
    SCOPED_TRACE(absl::StrCat("batch ", batch));
    Decode(machine, &policy, batch, 300, random);  // adapts to the change
    const Goodput run = Decode(machine, &policy, batch, 1000, random);
    const double plain = batch / machine.Pass(batch);
    EXPECT_GT(run.speed(), 0.97 * plain);
    if (batch == 1) {
      EXPECT_GT(run.speed(), 1.5 * plain);
    }
    if (batch >= 16) {  // a row costs as much as it can gain
      EXPECT_LT(static_cast<double>(run.proposed), 0.1 * static_cast<double>(run.tokens));
    }
  }
}

// ---- Clocks ----

// Returns the draft lengths that `auto` chooses round by round, where a pass of the target takes 10
// ms and 0.2 ms per row, and a pass of the draft takes 1 ms. The clock is set back once, in the
// draft's or the target's pass of a late round.
std::vector<int> DraftLengths(absl::Duration in_draft, absl::Duration in_target) {
  constexpr int kRounds = 250;
  constexpr int kLateRound = 120;
  FakeClock clock;
  int round = 0;
  const auto set_back = [&](absl::Duration* by) {
    if (round == kLateRound) clock.Advance(-std::exchange(*by, absl::ZeroDuration()));
  };
  const auto draft_pass = [&](int /*num_tokens*/) {
    clock.Advance(absl::Milliseconds(1));
    set_back(&in_draft);
  };
  const auto target_pass = [&](int num_tokens) {
    clock.Advance(absl::Milliseconds(10 + 0.2 * num_tokens));
    set_back(&in_target);
  };
  RoundModels models({.target = {.own = 0.3f, .on_pass = target_pass},
                      .draft = {.salt = 2, .own = 0.3f, .on_pass = draft_pass},
                      .num_pages = 2000});
  const auto s = Start(&models, &models.drafter, {.prompt = {1, 2, 3}, .max_tokens = 3000});
  s->draft_tokens = kAutoDraftTokens;
  std::vector<int> lengths;
  for (; round < kRounds; ++round) {
    s->draft_options = models.drafter.Options(s->draft_state.get(), s->tokens);
    Session* const session = s.get();
    RoundPlan plan =
        PlanRound({&session, 1}, /*chunk_tokens=*/8, models.target_cache->num_available_pages());
    AddDrafts(&models.policy, &plan);
    lengths.push_back(plan.steps[0].granted);
    EXPECT_TRUE(models.Round(&models.drafter, plan.steps).ok());
    models.target.passes().clear();
    models.draft.passes().clear();
  }
  return lengths;
}

// Row 81. Setting the clock back once does not affect what the policy learns from times.
TEST(KnownFaults, SettingTheClockBackChangesNoDraft) {
  const absl::Duration none = absl::ZeroDuration();
  const std::vector<int> undisturbed = DraftLengths(none, none);
  EXPECT_GT(std::accumulate(undisturbed.begin(), undisturbed.end(), 0), 250);
  EXPECT_EQ(DraftLengths(absl::Seconds(5), none), undisturbed);
  EXPECT_EQ(DraftLengths(none, absl::Seconds(5)), undisturbed);
}

// ---- Acceptance ----

// Row 78. A draft at temperature T is drawn at temperature T: its acceptance rate is that of
// sampling, sum_v min(p(v), q(v)), and not that of a greedy draft, p(argmax q).
TEST(KnownFaults, DraftsAreDrawnAtTheirTemperature) {
  for (const float temperature : {0.6f, 1.0f, 1.5f}) {
    const SamplingParams sampling{.temperature = temperature};
    RoundModels models({.num_pages = 4000});
    const auto s = Start(&models, &models.drafter,
                         {.prompt = {1, 2, 3}, .max_tokens = 6000, .sampling = sampling},
                         AcceptanceRule::kToken);
    double expected = 0.0;
    double greedy = 0.0;
    double variance = 0.0;
    int kept = 0;
    while (s->num_output() < 3000) {
      // The row of a round's first draft token; longer contexts would only cost time.
      Distribution p;
      Distribution q;
      ASSERT_TRUE(MakeDistribution(models.target.RowAfter(s->tokens), sampling, nullptr, &p).ok());
      ASSERT_TRUE(MakeDistribution(models.draft.RowAfter(s->tokens), sampling, nullptr, &q).ok());
      double overlap = 0.0;
      for (int v = 0; v < kSmallVocab; ++v) overlap += std::min(p.probs[v], q.probs[v]);
      expected += overlap;
      variance += overlap * (1.0 - overlap);
      greedy += p.probs[ArgMax(q.probs)];
      const int64_t before = s->completion.stats.accepted;
      ASSERT_TRUE(models.Round(&models.drafter, s.get(), 1).ok());
      kept += static_cast<int>(s->completion.stats.accepted - before);
      models.target.passes().clear();
      models.draft.passes().clear();
    }
    EXPECT_NEAR(kept, expected, 4.0 * std::sqrt(variance)) << temperature;
    EXPECT_GT(expected, greedy + 8.0 * std::sqrt(variance));  // otherwise the check would be empty
  }
}

// ---- Batches ----

// Row 79. A batch with drafts is verified in one pass, and drafted in one pass per token.
TEST(KnownFaults, ABatchWithADraftStaysABatch) {
  for (const int batch : {1, 3, 8}) {
    RoundModels models;
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < batch; ++i) {
      sessions.push_back(
          Start(&models, &models.drafter,
                {.prompt = {static_cast<TokenId>(i % kSmallVocab), 1, 2}, .max_tokens = 60}));
    }
    int num_rounds = 0;
    int num_steps = 0;
    for (; num_rounds < 8; ++num_rounds) {
      std::vector<RoundStep> steps;
      int longest = 0;
      for (const auto& s : sessions) {
        const int k = static_cast<int>(1 + (steps.size() + num_rounds) % 5);
        longest = std::max(longest, k);
        steps.push_back({.session = s.get(), .num_fed = s->num_pending(), .granted = k});
      }
      ASSERT_TRUE(models.Round(&models.drafter, steps).ok());
      num_steps += longest;
    }
    EXPECT_EQ(models.target.passes().size(), static_cast<size_t>(num_rounds));
    EXPECT_EQ(models.draft.passes().size(), static_cast<size_t>(num_steps));
  }
}

}  // namespace
}  // namespace tandem
