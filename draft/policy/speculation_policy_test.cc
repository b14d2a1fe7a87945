#include "draft/policy/speculation_policy.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// A simulated machine and pair of models with known costs and acceptance, and `num_sequences`
// sequences that decode for ever. All times are in plain passes of one row.
struct SimulatedPair {
  int num_sequences = 1;
  double step = 0.1;                                   // of the draft model
  std::function<double(int rows)> one_pass = nullptr;  // of a draft model that drafts in one pass
  double reading = 0.02;                               // per token that the draft model reads
  std::function<double(int rows)> pass = [](int rows) { return 1.0 + 0.02 * (rows - 1); };
  std::function<double(int depth)> by_model = [](int) { return 0.8; };  // acceptance
  std::function<double(int evidence)> by_lookup = nullptr;              // null for no lookup
  double lookups = 0.3;  // the share of rounds with a lookup
  double noise = 0.05;   // relative noise of every time, plus rare outliers
  double flips = 0.0;    // chance that the machine turns slow, or fast again, at each measurement
  // Whether the target reads prompts too, in extra rows of one round.
  bool reads_prompts = false;
  double sending = 0.0;  // time in the next round to send a token
};

class Simulation {
 public:
  Simulation(SimulatedPair world, uint64_t seed) : world_(std::move(world)), random_(seed) {
    sequences_.resize(world_.num_sequences);
    policy_.costs().ExpectStep(world_.step);
  }
  SimulatedPair& world() { return world_; }
  SpeculationPolicy& policy() { return policy_; }

  // Returns tokens per time over `num_rounds`, with drafts of `fixed` tokens or the policy's
  // choices.
  double Run(int num_rounds, int fixed = kAutoDraftTokens) {
    double tokens = 0.0;
    double time = 0.0;
    for (int round = 0; round < num_rounds; ++round) {
      tokens += Round(fixed, &time);
    }
    return tokens / time;
  }
  int num_probes() const { return num_probes_; }

 private:
  struct Sequence {
    AcceptanceEstimate acceptance = {};
    std::vector<DraftOption> options = {};
    int unread = 0;
    int length = 0;
  };
  // Sequences end and are replaced by new ones.
  static constexpr int kLength = 256;
  static constexpr int kPrompt = 20;

  double Disturbed(double time) {
    if (uniform_(random_) < world_.flips) is_slow_ = !is_slow_;
    if (is_slow_) time *= 1.6;
    const double factor = 1.0 + world_.noise * (2.0 * uniform_(random_) - 1.0);
    return time * (uniform_(random_) < 0.01 ? 3.0 : factor);
  }

  double Round(int fixed, double* time) {
    std::vector<DraftCandidate> candidates;
    int other_rows = 0;
    for (Sequence& s : sequences_) {
      if (s.length == 0 || s.length > kLength) {
        s = {.unread = kPrompt, .length = 1};
        policy_.costs().ObservePrompt(kPrompt,
                                      Disturbed(world_.pass(kPrompt)) * absl::Milliseconds(1));
        other_rows += world_.reads_prompts ? kPrompt : 0;
      }
      s.options = {{.source = DraftSource::kModel,
                    .max_tokens = 32,
                    .num_unread = s.unread + 1,
                    .in_one_pass = world_.one_pass != nullptr}};
      if (world_.by_lookup && uniform_(random_) < world_.lookups) {
        s.options.push_back({.source = DraftSource::kLookup,
                             .evidence = static_cast<int>(random_() % 4),
                             .max_tokens = 32});
      }
      candidates.push_back({.options = s.options,
                            .draft_tokens = fixed,
                            .room = 1000,
                            .num_wanted = kLength - s.length + 1,
                            .own = &s.acceptance,
                            .wider = &policy_.unsalted().AcceptanceAt(0.7f)});
    }
    const std::vector<DraftChoice> choices = policy_.Plan(candidates, other_rows);
    num_probes_ += policy_.is_probing() ? 1 : 0;
    RoundCosts::Round costs{.num_rows = world_.num_sequences + other_rows};
    double tokens = world_.num_sequences;
    double unread = 0.0;
    for (size_t i = 0; i < choices.size(); ++i) {
      Sequence& s = sequences_[i];
      const int k = choices[i].num_tokens;
      costs.num_rows += k;
      s.length += 1;
      if (k == 0) {
        ++s.unread;
        continue;
      }
      const DraftOption& option = s.options[choices[i].option];
      int accepted = 0;
      const bool is_model = option.source == DraftSource::kModel;
      while (accepted < k && uniform_(random_) < (is_model ? world_.by_model(accepted)
                                                           : world_.by_lookup(option.evidence))) {
        ++accepted;
      }
      if (is_model && option.in_one_pass) {
        const int num_rows = RoundCosts::RowsToRead(option.num_unread);
        costs.num_steps = 1;
        ++costs.num_draft_sequences;
        costs.num_draft_rows += num_rows + k;
        costs.num_unread += s.unread - num_rows;
        unread += s.unread - num_rows;
        s.unread = accepted;
      } else if (is_model) {
        costs.num_steps = std::max(costs.num_steps, k);
        ++costs.num_draft_sequences;
        costs.num_unread += s.unread;
        unread += s.unread;
        s.unread = accepted == k ? 1 : 0;
      } else {
        s.unread += accepted + 1;
      }
      tokens += accepted;
      s.length += accepted;
      s.acceptance.Observe(option, k, accepted);
      policy_.unsalted().ObserveAcceptance(0.7f, option, k, accepted);
    }
    const double drafting = costs.num_draft_rows > 0 ? world_.one_pass(costs.num_draft_rows)
                                                     : costs.num_steps * world_.step;
    const double draft = Disturbed(drafting + unread * world_.reading);
    costs.is_plain = std::all_of(choices.begin(), choices.end(),
                                 [](const DraftChoice& choice) { return choice.num_tokens == 0; });
    const double pass = world_.pass(costs.num_rows) + world_.sending * unsent_;
    unsent_ = tokens;
    const double verify = Disturbed(pass);
    costs.draft_time = absl::Milliseconds(draft);
    costs.verify_time = absl::Milliseconds(verify);
    if (policy_.measures() && other_rows == 0) policy_.costs().Observe(costs);
    if (policy_.ReadsPrompt(policy_.unsalted(), kPrompt, kLength)) {
      policy_.costs().ObserveReading(kPrompt, kPrompt * world_.reading * absl::Milliseconds(1));
    }
    policy_.EndRound({.has_read_much = other_rows > 0,
                      .num_tokens = static_cast<int>(tokens),
                      .start = now_,
                      .end = now_ + absl::Milliseconds(draft + verify)});
    now_ = now_ + absl::Milliseconds(draft + verify);
    // The policy measures disturbed times; the test judges undisturbed ones.
    *time += drafting + unread * world_.reading + pass;
    return tokens;
  }

  SimulatedPair world_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_;
  SpeculationPolicy policy_;
  std::vector<Sequence> sequences_;
  int num_probes_ = 0;
  Instant now_ = Instant::Now();
  double unsent_ = 0.0;  // tokens of the last round
  bool is_slow_ = false;
};

constexpr int kRounds = 3000;

struct Speeds {
  double chosen = 0.0;
  double plain = 0.0;
  double best_fixed = 0.0;
};
// The policy's speed is the mean of four runs, because its first trials depend on chance.
Speeds SpeedsIn(const SimulatedPair& world, int num_rounds = kRounds) {
  constexpr int kRuns = 4;
  Speeds speeds;
  for (int seed = 10; seed < 10 + kRuns; ++seed) {
    speeds.chosen += Simulation(world, seed).Run(num_rounds) / kRuns;
  }
  speeds.plain = Simulation(world, 2).Run(num_rounds, 0);
  speeds.best_fixed = speeds.plain;
  for (const int k : {1, 2, 3, 4, 6, 8, 12}) {
    speeds.best_fixed = std::max(speeds.best_fixed, Simulation(world, 3).Run(num_rounds, k));
  }
  return speeds;
}

// Row 203 of the bug catalogue.
TEST(SpeculationPolicy, MeasuresTheModelEvenIfLookupsMatchFromTheStart) {
  Simulation simulation({.by_lookup = [](int) { return 0.2; }, .lookups = 1.0}, 5);
  simulation.Run(160);
  EXPECT_TRUE(simulation.policy().costs().knows_step());
  EXPECT_GT(simulation.Run(1000), 1.5);
}

// Counts from the first round on, calibration included.
TEST(SpeculationPolicy, ComesCloseToTheBestFixedLength) {
  const auto flat = [](int rows) { return 1.0 + 0.01 * (rows - 1); };
  const auto steep = [](int rows) { return 1.0 + 0.25 * (rows - 1); };
  const auto stairs = [](int rows) { return 1.0 + 0.5 * ((rows - 1) / 4); };
  for (const auto& pass : std::vector<std::function<double(int)>>{flat, steep, stairs}) {
    for (const double alpha : {0.1, 0.5, 0.7, 0.9}) {
      for (const double step : {0.02, 0.15, 0.5}) {
        // A draft model that drafts in steps, and one that drafts in one pass of as many rows.
        for (const bool in_one_pass : {false, true}) {
          SimulatedPair world{
              .step = step, .pass = pass, .by_model = [alpha](int) { return alpha; }};
          if (in_one_pass) world.one_pass = [=](int rows) { return step * pass(rows); };
          const Speeds speeds = SpeedsIn(world);
          const std::string what = absl::StrCat(pass(5), " alpha ", alpha, " step ", step, ": ",
                                                speeds.chosen, " of ", speeds.best_fixed);
          EXPECT_GE(speeds.chosen, 0.95 * speeds.best_fixed) << what << in_one_pass;
          EXPECT_GE(speeds.chosen, 0.98 * speeds.plain) << what << in_one_pass;
        }
      }
    }
  }
}

// Shared machines change their speed.
TEST(SpeculationPolicy, IsNotMisledByAMachineThatChangesItsSpeed) {
  for (const double row : {0.02, 0.15}) {
    const SimulatedPair world{.step = 0.17,
                              .pass = [row](int rows) { return 1.0 + row * (rows - 1); },
                              .by_model = [](int depth) { return depth == 0 ? 0.7 : 0.75; },
                              .flips = 0.01};
    const Speeds speeds = SpeedsIn(world);
    EXPECT_GE(speeds.chosen, 0.95 * speeds.best_fixed) << speeds.chosen << " " << speeds.best_fixed;
  }
}

TEST(SpeculationPolicy, FollowsAcceptanceThatFallsWithDepth) {
  const Speeds speeds =
      SpeedsIn({.step = 0.05, .by_model = [](int depth) { return depth < 2 ? 0.9 : 0.3; }});
  EXPECT_GE(speeds.chosen, 0.95 * speeds.best_fixed) << speeds.chosen << " " << speeds.best_fixed;
}

TEST(SpeculationPolicy, HandlesBatchesBoundByArithmetic) {
  for (const int num_sequences : {2, 8, 32}) {
    // Passes are bound by arithmetic from 16 rows on.
    const auto pass = [](int rows) { return rows <= 16 ? 1.0 : rows / 16.0; };
    const SimulatedPair world{.num_sequences = num_sequences, .step = 0.1, .pass = pass};
    const Speeds speeds = SpeedsIn(world, 2000);
    EXPECT_GE(speeds.chosen, 0.95 * speeds.best_fixed) << num_sequences << ": " << speeds.chosen;
    EXPECT_GE(speeds.chosen, 0.98 * speeds.plain) << num_sequences;
  }
}

// The shipped pair on two cores, where batches are bound by arithmetic: drafts gain little or
// nothing, times are disturbed, and prompts keep coming.
TEST(SpeculationPolicy, CostsNothingWhereBatchesGainNothing) {
  for (const int num_sequences : {2, 4, 8, 16}) {
    for (const double acceptance : {0.7, 0.8}) {
      for (const double sending : {0.0, 0.05}) {
        const double flips = acceptance == 0.7 ? 0.0 : 0.01;
        const SimulatedPair world{.num_sequences = num_sequences,
                                  .step = 0.13 + 0.045 * num_sequences,
                                  .pass = [](int rows) { return 0.7 + 0.28 * rows; },
                                  .by_model = [acceptance](int) { return acceptance; },
                                  .noise = 0.2,
                                  .flips = flips,
                                  .reads_prompts = true,
                                  .sending = sending};
        const Speeds speeds = SpeedsIn(world, 2000);
        EXPECT_GE(speeds.chosen, 0.98 * speeds.plain)
            << num_sequences << " " << acceptance << " " << sending << ": "
            << speeds.chosen / speeds.plain << ", best " << speeds.best_fixed / speeds.plain;
      }
    }
  }
}

TEST(SpeculationPolicy, UsesGoodLookups) {
  const SimulatedPair world{.step = 0.3,
                            .by_model = [](int) { return 0.5; },
                            .by_lookup = [](int evidence) { return 0.3 * evidence; }};
  const Speeds speeds = SpeedsIn(world);
  EXPECT_GE(speeds.chosen, 0.98 * speeds.best_fixed) << speeds.chosen << " " << speeds.best_fixed;
}

TEST(SpeculationPolicy, SpendsLittleOnTryingWhatDoesNotPay) {
  for (const double reading : {0.001, 0.05}) {
    SimulatedPair world{.step = 0.2, .reading = reading, .by_model = [](int) { return 0.02; }};
    Simulation simulation(world, 4);
    simulation.Run(200);  // calibration
    const double chosen = simulation.Run(kRounds);
    EXPECT_GE(chosen, 0.985 * Simulation(world, 5).Run(kRounds, 0)) << reading;
    EXPECT_GT(simulation.num_probes(), 5) << reading;
    EXPECT_FALSE(simulation.policy().ReadsPrompt(simulation.policy().unsalted(), 20, 256));
  }
}

TEST(SpeculationPolicy, ResumesWhenDraftsAreAcceptedAgain) {
  Simulation simulation({.step = 0.05, .by_model = [](int) { return 0.02; }}, 6);
  simulation.Run(3000);
  simulation.world().by_model = [](int) { return 0.9; };
  simulation.Run(20000);
  EXPECT_GT(simulation.Run(1000), 2.0);
  EXPECT_TRUE(simulation.policy().ReadsPrompt(simulation.policy().unsalted(), 20, 256));
}

TEST(SpeculationPolicy, StopsWhenDraftsAreRejected) {
  Simulation simulation({.step = 0.2}, 7);
  simulation.Run(3000);
  simulation.world().by_model = [](int) { return 0.02; };
  simulation.Run(300);
  EXPECT_GE(simulation.Run(3000), 0.98 * Simulation(simulation.world(), 2).Run(3000, 0));
}

TEST(SpeculationPolicy, FollowsTheMachinesSpeed) {
  Simulation simulation({.step = 0.1}, 8);
  simulation.Run(2000);
  const double before = simulation.Run(2000);
  simulation.world().step = 0.2;  // everything is half as fast
  simulation.world().pass = [](int rows) { return 2.0 + 0.04 * (rows - 1); };
  simulation.Run(100);
  EXPECT_GE(simulation.Run(2000), 0.97 * before / 2);
}

TEST(SpeculationPolicy, MeasuresWithWarmCachesUnlessPromptsKeepComing) {
  SpeculationPolicy policy;
  EXPECT_FALSE(policy.measures());
  for (int i = 0; i < 10; ++i) policy.EndRound({.has_read_much = false});
  EXPECT_TRUE(policy.measures());
  policy.EndRound({.has_read_much = true});
  int measured = 0;
  for (int i = 0; i < 650; ++i) {
    measured += policy.measures() ? 1 : 0;
    policy.EndRound({.has_read_much = i % 3 == 0});
  }
  EXPECT_GE(measured, 9);
  EXPECT_LE(measured, 20);
}

TEST(SpeculationPolicy, MeasuresLongPassesAtOnce) {
  SpeculationPolicy policy;
  policy.costs().ObservePrompt(100, absl::Milliseconds(500));
  policy.EndRound({.has_read_much = true});
  EXPECT_TRUE(policy.measures());
}

// The candidate of an answer with a draft model, which may emit 100 more tokens.
DraftCandidate Candidate(const std::vector<DraftOption>& options, const AcceptanceEstimate& own,
                         double lost) {
  return {.options = options,
          .draft_tokens = kAutoDraftTokens,
          .room = 100,
          .num_wanted = 100,
          .lost = lost,
          .own = &own,
          .wider = &own};
}

// Returns a policy on a machine on which a step costs `step` of a plain pass of 40 ms and a row .1.
SpeculationPolicy MeasuredPolicy(double step) {
  SpeculationPolicy policy;
  const auto observe = [&policy](int num_rows, int num_steps, double draft) {
    policy.costs().Observe({.is_plain = num_steps == 0,
                            .num_rows = num_rows,
                            .num_steps = num_steps,
                            .num_draft_sequences = num_steps == 0 ? 0 : 1,
                            .draft_time = draft * absl::Milliseconds(40),
                            .verify_time = (0.9 + 0.1 * num_rows) * absl::Milliseconds(40)});
  };
  for (int i = 0; i < 3; ++i) observe(1, 0, 0.0);
  for (int i = 0; i < 3; ++i) observe(2, 1, step);
  return policy;
}

TEST(SpeculationPolicy, StopsInAnAnswerWhoseLookupsLose) {
  SpeculationPolicy policy = MeasuredPolicy(0.4);
  const AcceptanceEstimate own;
  const auto plan = [&](int evidence, double lost) {
    const std::vector<DraftOption> options = {
        {.source = DraftSource::kLookup, .evidence = evidence, .max_tokens = 8}};
    return policy.Plan(std::vector{Candidate(options, own, lost)}, 0).front().num_tokens;
  };
  EXPECT_GT(plan(0, 0.0), 0);
  EXPECT_EQ(plan(0, 0.6), 0);
  EXPECT_GT(plan(0, -3.0), 0);
  EXPECT_GT(plan(7, 0.6), 0);  // promises much more than plain decoding
}

// The longest draft of a model of which nothing is known.
TEST(SpeculationPolicy, BeginsWithShortDraftsOfAModel) {
  SpeculationPolicy policy = MeasuredPolicy(0.02);
  const std::vector<DraftOption> options = {
      {.source = DraftSource::kModel, .max_tokens = 8, .num_unread = 1, .can_stop = true}};
  AcceptanceEstimate own;
  const ConfidenceCurve confidence;
  const auto plan = [&] {
    DraftCandidate candidate = Candidate(options, own, 0.0);
    candidate.confidence = &confidence;
    return policy.Plan(std::vector{candidate}, 0).front().num_tokens;
  };
  EXPECT_EQ(plan(), 2);
  for (int i = 0; i < 20; ++i) own.Observe({.source = DraftSource::kModel}, 4, 4);
  EXPECT_GT(plan(), 2);
}

// On a busy machine no pass is measured, and drafting begins all the same.
TEST(SpeculationPolicy, DoesNotWaitForAQuietMachine) {
  for (const bool is_disturbed : {false, true}) {
    SpeculationPolicy policy;
    const AcceptanceEstimate own;
    const std::vector<DraftOption> options = {
        {.source = DraftSource::kModel, .max_tokens = 8, .num_unread = 1}};
    int num_plain = 0;
    while (policy.Plan(std::vector{Candidate(options, own, 0.0)}, 0).front().num_tokens == 0) {
      ASSERT_LT(++num_plain, 30);
      policy.EndRound({.is_disturbed = is_disturbed, .num_tokens = 1});
    }
    EXPECT_EQ(num_plain, is_disturbed ? 4 : 14);
  }
}

// A source that was never verified must pay for its reading twice.
TEST(SpeculationPolicy, ReadsALongPromptOnlyForADraftThatIsKnownToPay) {
  const auto drafts = [](int num_unread, int num_tests) {
    SpeculationPolicy policy = MeasuredPolicy(0.2);
    AcceptanceEstimate own;
    for (int i = 0; i < num_tests; ++i) own.Observe({.source = DraftSource::kModel}, 4, 4);
    const std::vector<DraftOption> options = {
        {.source = DraftSource::kModel, .max_tokens = 8, .num_unread = num_unread}};
    return policy.Plan(std::vector{Candidate(options, own, 0.0)}, 0).front().num_tokens > 0;
  };
  EXPECT_TRUE(drafts(100, 0));
  EXPECT_FALSE(drafts(1500, 0));
  EXPECT_TRUE(drafts(1500, 20));
  EXPECT_FALSE(drafts(30000, 20));
}

// Times of rounds that other processes disturb do not enter the comparison.
TEST(SpeculationPolicy, KeepsItsVerdictInDisturbedRounds) {
  SpeedupMonitor monitor;
  for (int i = 0; i < 1000; ++i) {
    const bool drafts = monitor.Allows(1.1);
    monitor.Observe(drafts ? 1 : 2, absl::InfiniteDuration());
  }
  EXPECT_EQ(monitor.mean_gain(), 0.0);
}

TEST(SpeculationPolicy, LeavesFixedLengthsAlone) {
  SpeculationPolicy policy;
  const AcceptanceEstimate own;
  const std::vector<DraftOption> options = {{.max_tokens = 32, .num_unread = 1}};
  for (int round = 0; round < 300; ++round) {
    std::vector<DraftCandidate> candidates;
    for (const int k : {0, 3, 8}) {
      candidates.push_back({.options = options,
                            .draft_tokens = k,
                            .room = 5,
                            .num_wanted = 9,
                            .own = &own,
                            .wider = &policy.unsalted().AcceptanceAt(0.0f)});
    }
    const std::vector<DraftChoice> choices = policy.Plan(candidates, round % 7);
    EXPECT_EQ(choices[0].num_tokens, 0);
    EXPECT_EQ(choices[1].num_tokens, 3);
    EXPECT_EQ(choices[2].num_tokens, 5);
  }
}

TEST(SpeculationPolicy, LearnsTemperaturesSeparately) {
  SpeculationPolicy policy;
  const DraftOption kind{.max_tokens = 4};
  for (int i = 0; i < 500; ++i) policy.unsalted().ObserveAcceptance(0.0f, kind, 4, 4);
  std::vector<double> greedy(2);
  std::vector<double> warm(2);
  policy.unsalted().AcceptanceAt(0.0f).Survival(kind, nullptr, absl::MakeSpan(greedy));
  policy.unsalted().AcceptanceAt(1.0f).Survival(kind, nullptr, absl::MakeSpan(warm));
  EXPECT_GT(greedy[0], warm[0]);
}

// Rounds of tenants on a machine with known costs.
class TenantsRounds {
 public:
  TenantsRounds() { Run(&machine_, 0.5, 2000, /*learns_costs=*/true); }

  // Runs rounds with a sequence of each tenant, without accepting a draft token.
  void RunShared(const std::vector<TenantSpeculation*>& tenants, int num_rounds) {
    for (int round = 0; round < num_rounds; ++round) {
      std::vector<DraftCandidate> candidates;
      for (TenantSpeculation* tenant : tenants) candidates.push_back(CandidateOf(tenant));
      int num_drafted = 0;
      for (const DraftChoice& choice : policy_.Plan(candidates, 0)) {
        num_drafted += choice.num_tokens;
      }
      const Instant start = Instant::Now();
      clock_.Advance(absl::Milliseconds(1 + num_drafted));
      policy_.EndRound(
          {.num_tokens = static_cast<int>(tenants.size()), .start = start, .end = Instant::Now()});
    }
  }

  // Runs rounds of one tenant, which accepts draft tokens at this rate. Returns the number of
  // tokens drafted in each round.
  std::vector<int> Run(TenantSpeculation* tenant, double acceptance, int num_rounds,
                       bool learns_costs = false) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform;
    std::vector<int> lengths;
    for (int round = 0; round < num_rounds; ++round) {
      const DraftCandidate candidate = CandidateOf(tenant);
      const int k = policy_.Plan({&candidate, 1}, 0)[0].num_tokens;
      int accepted = 0;
      while (accepted < k && uniform(random) < acceptance) ++accepted;
      if (k > 0) tenant->ObserveAcceptance(0.0f, options_[0], k, accepted);
      const Instant start = Instant::Now();
      const absl::Duration draft = absl::Microseconds(200) * k;
      const absl::Duration verify = absl::Microseconds(1000 + 50 * k);
      clock_.Advance(draft + verify);
      if (learns_costs) {
        policy_.costs().Observe({.is_plain = k == 0,
                                 .num_rows = 1 + k,
                                 .num_steps = k,
                                 .num_draft_sequences = k > 0 ? 1 : 0,
                                 .draft_time = draft,
                                 .verify_time = verify});
      }
      tenant->EndRound();
      policy_.EndRound({.num_tokens = 1 + accepted, .start = start, .end = Instant::Now()});
      lengths.push_back(k);
    }
    return lengths;
  }

 private:
  DraftCandidate CandidateOf(TenantSpeculation* tenant) const {
    return {.options = options_,
            .draft_tokens = kAutoDraftTokens,
            .room = 100,
            .num_wanted = 100,
            .own = &own_,
            .wider = &tenant->AcceptanceAt(0.0f),
            .tenant = tenant};
  }

  const std::vector<DraftOption> options_ = {{.max_tokens = 8, .num_unread = 1}};
  const AcceptanceEstimate own_;
  FakeClock clock_;
  SpeculationPolicy policy_;
  TenantSpeculation machine_;
};

// Row 179 of the bug catalogue: with known costs another tenant's texts change no plan, whether its
// drafts were always accepted or never. The tenant's own texts do.
TEST(SpeculationPolicy, PlansOfATenantDependOnlyOnItsOwnTexts) {
  const auto plans_after = [](double acceptance, bool is_own) {
    TenantsRounds rounds;
    TenantSpeculation other;
    TenantSpeculation tenant;
    if (acceptance >= 0.0) rounds.Run(is_own ? &tenant : &other, acceptance, 1000);
    return rounds.Run(&tenant, 0.6, 300);
  };
  const std::vector<int> alone = plans_after(-1.0, false);
  EXPECT_GT(*std::max_element(alone.begin(), alone.end()), 0);
  for (const double acceptance : {0.0, 0.3, 0.95}) {
    EXPECT_EQ(plans_after(acceptance, false), alone) << acceptance;
  }
  EXPECT_NE(plans_after(0.0, true), alone);
}

// From rounds that several tenants share, each tenant learns only its own acceptance.
TEST(SpeculationPolicy, SharedRoundsDoNotChangePlansOfOneTenant) {
  const auto plans_after = [](int num_shared) {
    TenantsRounds rounds;
    TenantSpeculation other;
    TenantSpeculation tenant;
    rounds.RunShared({&other, &tenant}, num_shared);
    return rounds.Run(&tenant, 0.6, 300);
  };
  EXPECT_EQ(plans_after(1000), plans_after(0));
}

}  // namespace
}  // namespace tandem
