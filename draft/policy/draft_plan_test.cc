#include "draft/policy/draft_plan.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr absl::Duration kPlain = absl::Milliseconds(10);

// Costs of a machine where each further row costs `row` plain passes and a draft step costs `step`.
// Measured for up to 64 rows, with straight lines in between.
RoundCosts Costs(double step, double row) {
  RoundCosts costs;
  for (int trial = 0; trial < 3; ++trial) {
    for (int rows = 1; rows <= 64; rows < 16 ? ++rows : rows *= 2) {
      costs.Observe({.num_rows = rows,
                     .num_steps = 1,
                     .num_draft_sequences = 1,
                     .num_unread = 0,
                     .draft_time = step * kPlain,
                     .verify_time = (1.0 + row * (rows - 1)) * kPlain});
    }
  }
  return costs;
}

// The same with a draft model that drafts in one pass, which costs `first` and `row` for each
// further row.
RoundCosts OnePassCosts(double first, double draft_row, double row) {
  RoundCosts costs = Costs(first, row);
  for (int trial = 0; trial < 3; ++trial) {
    for (int rows = 1; rows <= 64; rows < 16 ? ++rows : rows *= 2) {
      costs.Observe({.is_plain = false,
                     .num_rows = 1,
                     .num_steps = 1,
                     .num_draft_sequences = 1,
                     .num_draft_rows = rows,
                     .draft_time = (first + draft_row * (rows - 1)) * kPlain,
                     .verify_time = kPlain});
    }
  }
  return costs;
}

// Returns an estimate after observing drafts that are accepted at this rate.
AcceptanceEstimate Accepting(double rate, const DraftOption& kind) {
  AcceptanceEstimate estimate;
  double owed = 0.0;
  for (int i = 0; i < 4000; ++i) {
    int accepted = 0;
    for (; accepted < AcceptanceEstimate::kNumDepths; ++accepted) {
      owed += rate;
      if (owed < 1.0) break;
      owed -= 1.0;
    }
    estimate.Observe(kind, AcceptanceEstimate::kNumDepths, accepted);
  }
  return estimate;
}

// The same with drafts that are kept at random, so that all depths have that rate.
AcceptanceEstimate AcceptingAtRandom(double rate, const DraftOption& kind,
                                     std::mt19937_64* random) {
  AcceptanceEstimate estimate;
  std::bernoulli_distribution is_kept(rate);
  for (int i = 0; i < 400; ++i) {
    int accepted = 0;
    while (accepted < AcceptanceEstimate::kNumDepths && is_kept(*random)) ++accepted;
    estimate.Observe(kind, AcceptanceEstimate::kNumDepths, accepted);
  }
  return estimate;
}

const std::vector<DraftOption>& ModelOption() {
  static const std::vector<DraftOption> options = {
      {.max_tokens = kMaxDraftTokens, .num_unread = 1}};
  return options;
}

DraftCandidate Candidate(const std::vector<DraftOption>& options, const AcceptanceEstimate* own,
                         const AcceptanceEstimate* wider) {
  return {.options = options,
          .draft_tokens = kAutoDraftTokens,
          .room = 100,
          .num_wanted = 100,
          .own = own,
          .wider = wider};
}

// Compares with the optimum of (1 - alpha^(k+1)) / (1 - alpha) / (1 + k c), found by trying every
// k.
TEST(PlanDrafts, NearlyMaximisesTheExpectedSpeedOfOneSequence) {
  for (const double alpha : {0.3, 0.6, 0.8, 0.9}) {
    for (const double c : {0.02, 0.05, 0.1, 0.2}) {
      const AcceptanceEstimate wider = Accepting(alpha, {});
      const AcceptanceEstimate own;
      const DraftCandidate candidate = Candidate(ModelOption(), &own, &wider);
      const RoundCosts costs = Costs(c / 2, c / 2);
      const DraftPlan plan = PlanDrafts(costs, {&candidate, 1}, 0);
      std::vector<double> survival(16);
      own.Survival({}, &wider, absl::MakeSpan(survival));
      int best = 0;
      double best_speed = 1.0;
      double expected = 1.0;
      for (int k = 1; k <= 16; ++k) {
        expected += survival[k - 1];
        const double speed = expected / (1 + k * c);
        if (speed > best_speed) {
          best_speed = speed;
          best = k;
        }
      }
      // The learned costs pass through exponentials and logarithms.
      EXPECT_NEAR(plan.gain, best_speed, 1e-3) << alpha << " " << c;
      // The shortest draft within 2 %.
      EXPECT_LE(plan.choices[0].num_tokens, best) << alpha << " " << c;
      double chosen = 1.0;
      for (int k = 1; k <= plan.choices[0].num_tokens; ++k) chosen += survival[k - 1];
      EXPECT_GE(chosen / (1 + plan.choices[0].num_tokens * c), 0.979 * best_speed);
    }
  }
}

// The largest rate of all combinations of three lengths from 0 to `most`.
double BestOfThree(int most, const std::function<double(const std::vector<int>&)>& rate_of) {
  double best = 0.0;
  for (int a = 0; a <= most; ++a) {
    for (int b = 0; b <= most; ++b) {
      for (int c = 0; c <= most; ++c) best = std::max(best, rate_of({a, b, c}));
    }
  }
  return best;
}

// Compares with all combinations of lengths of all candidates.
TEST(PlanDrafts, IsNearlyTheBestOfAllCombinations) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform;
  for (int trial = 0; trial < 40; ++trial) {
    const double step = 0.3 * uniform(random);
    const double row = 0.3 * uniform(random);
    const RoundCosts costs = Costs(step, row);
    constexpr int kSequences = 3;
    constexpr int kMost = 4;
    const std::vector<DraftOption> by_model = {{.max_tokens = kMost, .num_unread = 1}};
    const std::vector<DraftOption> by_lookup = {
        {.source = DraftSource::kLookup, .evidence = 2, .max_tokens = kMost}};
    std::vector<AcceptanceEstimate> estimates;
    std::vector<bool> is_model;
    for (int i = 0; i < kSequences; ++i) {
      is_model.push_back(random() % 3 != 0);
      estimates.push_back(Accepting(uniform(random), (is_model[i] ? by_model : by_lookup)[0]));
    }
    const AcceptanceEstimate own;
    std::vector<DraftCandidate> candidates;
    std::vector<std::vector<double>> survival(kSequences, std::vector<double>(kMost));
    for (int i = 0; i < kSequences; ++i) {
      const std::vector<DraftOption>& options = is_model[i] ? by_model : by_lookup;
      candidates.push_back(Candidate(options, &own, &estimates[i]));
      own.Survival(options[0], &estimates[i], absl::MakeSpan(survival[i]));
    }
    // Steps were measured for one sequence; the curve makes them cost more for several.
    const int num_model = static_cast<int>(std::count(is_model.begin(), is_model.end(), true));
    const double step_cost = costs.Step(std::max(num_model, 1));
    const auto rate_of = [&](const std::vector<int>& lengths) {
      double expected = kSequences;
      int depth = 0;
      int rows = kSequences;
      for (int i = 0; i < kSequences; ++i) {
        for (int d = 0; d < lengths[i]; ++d) expected += survival[i][d];
        if (is_model[i]) depth = std::max(depth, lengths[i]);
        rows += lengths[i];
      }
      return expected / (costs.Pass(rows) + depth * step_cost);
    };
    const double best = BestOfThree(kMost, rate_of);
    const DraftPlan plan = PlanDrafts(costs, candidates, 0);
    std::vector<int> lengths;
    for (const DraftChoice& choice : plan.choices) lengths.push_back(choice.num_tokens);
    EXPECT_GE(rate_of(lengths), (0.98 - 1e-9) * best) << trial;
    EXPECT_NEAR(plan.gain, best / rate_of({0, 0, 0}), 1e-9) << trial;
  }
}

// The same where one pass drafts all tokens of all sequences. Its rows cost, and so does each kept
// token, which the next draft reads.
TEST(PlanDrafts, IsNearlyTheBestOfAllCombinationsInOnePass) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> uniform;
  int num_drafted = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const RoundCosts costs =
        OnePassCosts(0.4 * uniform(random), 0.1 * uniform(random), 0.3 * uniform(random));
    constexpr int kSequences = 3;
    constexpr int kMost = 5;
    const std::vector<DraftOption> options = {
        {.max_tokens = kMost, .num_unread = 4, .in_one_pass = true}};
    std::vector<AcceptanceEstimate> estimates;
    for (int i = 0; i < kSequences; ++i) {
      estimates.push_back(AcceptingAtRandom(uniform(random), options[0], &random));
    }
    const AcceptanceEstimate own;
    std::vector<DraftCandidate> candidates;
    std::vector<std::vector<double>> survival(kSequences, std::vector<double>(kMost));
    for (int i = 0; i < kSequences; ++i) {
      candidates.push_back(Candidate(options, &own, &estimates[i]));
      own.Survival(options[0], &estimates[i], absl::MakeSpan(survival[i]));
    }
    const auto rate_of = [&](const std::vector<int>& lengths) {
      double kept = 0.0;
      int rows = 0;
      for (int i = 0; i < kSequences; ++i) {
        for (int d = 0; d < lengths[i]; ++d) kept += survival[i][d];
        rows += lengths[i];
      }
      double time = costs.Pass(kSequences + rows) + costs.OnePass(rows);
      if (rows > 0) time += kept * (costs.OnePass(rows + 1) - costs.OnePass(rows));
      return (kSequences + kept) / time;
    };
    const double best = BestOfThree(kMost, rate_of);
    const DraftPlan plan = PlanDrafts(costs, candidates, 0);
    std::vector<int> lengths;
    for (const DraftChoice& choice : plan.choices) lengths.push_back(choice.num_tokens);
    num_drafted += plan.gain > 1.0 ? 1 : 0;
    EXPECT_GE(rate_of(lengths), 0.98 * best) << trial;
    EXPECT_NEAR(plan.gain, best / rate_of({0, 0, 0}), 1e-9) << trial;
    EXPECT_EQ(plan.worth_a_step, 0.0);
  }
  EXPECT_GT(num_drafted, 10);
}

// Where further rows are as expensive as passes, a long draft from one pass does not pay either.
TEST(PlanDrafts, DraftsInOnePassStayShortWhereRowsAreExpensive) {
  const std::vector<DraftOption> options = {
      {.max_tokens = kMaxDraftTokens, .num_unread = 1, .in_one_pass = true}};
  std::mt19937_64 random(5);
  const AcceptanceEstimate wider = AcceptingAtRandom(0.8, options[0], &random);
  const AcceptanceEstimate own;
  const DraftCandidate candidate = Candidate(options, &own, &wider);
  const auto length_at = [&](double row) {
    const RoundCosts costs = OnePassCosts(0.2, 0.2 * row, row);
    return PlanDrafts(costs, {&candidate, 1}, 0).choices[0].num_tokens;
  };
  EXPECT_GE(length_at(0.02), 6);
  EXPECT_LE(length_at(0.4), 2);
  EXPECT_EQ(length_at(1.0), 0);
}

// Large passes are seldom measured, so their estimated cost may be too low.
TEST(PlanDrafts, PromptsInThePassDoNotRaiseTheExpectedGain) {
  RoundCosts costs = Costs(0.1, 0.25);
  for (const int rows : {1, 32, 1, 32, 1, 32}) {
    costs.Observe(
        {.is_plain = false, .num_rows = rows, .verify_time = kPlain * (rows > 1 ? 5 : 1)});
  }
  ASSERT_LT(costs.Pass(28) - costs.Pass(24), costs.Pass(8) - costs.Pass(4));
  const AcceptanceEstimate wider = Accepting(0.7, {});
  const AcceptanceEstimate own;
  const std::vector<DraftCandidate> candidates(4, Candidate(ModelOption(), &own, &wider));
  EXPECT_LE(PlanDrafts(costs, candidates, 20).gain, PlanDrafts(costs, candidates, 0).gain);
}

TEST(PlanDrafts, ChoosesTheBetterOption) {
  const std::vector<DraftOption> both = {
      {.source = DraftSource::kModel, .max_tokens = 32, .num_unread = 1},
      {.source = DraftSource::kLookup, .evidence = 5, .max_tokens = 32}};
  const RoundCosts costs = Costs(0.2, 0.02);
  for (const double lookup_rate : {0.1, 0.9}) {
    AcceptanceEstimate wider = Accepting(0.8, both[0]);
    for (int i = 0; i < 1000; ++i) wider.Observe(both[1], 1, i % 10 < 10 * lookup_rate ? 1 : 0);
    const AcceptanceEstimate own;
    for (const int k : {kAutoDraftTokens, 4}) {
      DraftCandidate candidate = Candidate(both, &own, &wider);
      candidate.draft_tokens = k;
      const DraftPlan plan = PlanDrafts(costs, {&candidate, 1}, 0);
      EXPECT_EQ(plan.choices[0].option, lookup_rate > 0.5 ? 1 : 0) << k;
      EXPECT_GT(plan.choices[0].num_tokens, 0);
      if (k > 0) {
        EXPECT_EQ(plan.choices[0].num_tokens, k);
      }
    }
  }
}

TEST(PlanDrafts, KeepsFixedLengthsWithinTheirLimits) {
  const AcceptanceEstimate estimate = Accepting(0.01, {});
  DraftCandidate candidate = Candidate(ModelOption(), &estimate, &estimate);
  const RoundCosts costs = Costs(5.0, 1.0);
  for (const int k : {0, 1, 7, 32}) {
    candidate.draft_tokens = k;
    candidate.room = 100;
    EXPECT_EQ(PlanDrafts(costs, {&candidate, 1}, 0).choices[0].num_tokens, k);
    candidate.room = 3;
    EXPECT_EQ(PlanDrafts(costs, {&candidate, 1}, 0).choices[0].num_tokens, std::min(k, 3));
  }
  candidate.draft_tokens = 5;
  candidate.options = {};
  EXPECT_EQ(PlanDrafts(costs, {&candidate, 1}, 0).choices[0].num_tokens, 0);
  EXPECT_TRUE(PlanDrafts(costs, {}, 7).choices.empty());
}

// Reading for a draft must pay off within the tokens that are still wanted.
TEST(PlanDrafts, CountsTheCostOfUnreadTokens) {
  const AcceptanceEstimate wider = Accepting(0.8, {});
  const AcceptanceEstimate own;
  const std::vector<DraftOption> unread = {{.max_tokens = 32, .num_unread = 1000}};
  RoundCosts costs = Costs(0.1, 0.02);
  costs.ObserveReading(100, kPlain);  // 1000 tokens cost ten plain passes
  DraftCandidate candidate = Candidate(unread, &own, &wider);
  for (const int wanted : {4, 1000}) {
    candidate.num_wanted = wanted;
    EXPECT_EQ(PlanDrafts(costs, {&candidate, 1}, 0).choices[0].num_tokens > 0, wanted > 4);
  }
}

}  // namespace
}  // namespace tandem
