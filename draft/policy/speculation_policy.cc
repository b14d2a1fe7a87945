#include "draft/policy/speculation_policy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

// Speculation starts at this predicted gain, and stops at a gain of 1.
constexpr double kStartingGain = 1.03;
// Rounds in a row that draft nothing, because a plain pass over this many sequences has not been
// measured: the first ones of a process, and those that can be measured. On a busy machine none is.
constexpr int kMaxRoundsForAPass = 14;
// Rounds that try a draft model until one of its steps was measured. A drafter that fails every
// time is not tried for ever.
constexpr int kMaxRoundsForAStep = 24;
// Exploration: at these intervals drafts are a token longer or shorter than planned, to measure
// depths and passes that would otherwise never occur. The first explorations come sooner. They try
// lengths up to kFirstExplorations, but at most about twice the longest planned length, because
// drafts that do not pay cost more the larger the batch.
constexpr int kRoundsBetweenExplorations = 64;
constexpr int kRoundsBetweenFirstExplorations = 16;
constexpr int kFirstExplorations = 8;
// While speculation is off, this share of the time is spent on probes.
constexpr double kProbeShare = 0.005;
// The number of consecutive rounds in a trial. The first of them are not measured. The first trial
// of a draft model is one round, because all of its costs are new.
constexpr int kRoundsOfTrial = RoundCosts::kUnmeasuredRounds + 2;
// The saved budget, per round of a trial, is at most the cost of the cheapest probe or this,
// whichever is larger.
constexpr double kMaxBudget = 1.0;
// An answer whose lookups have lost more than this many plain passes, or this share of its tokens,
// drafts from texts only where the plan promises a clear gain. There are many kinds of lookups, and
// each would lose before its own acceptance is known.
constexpr double kMaxLost = 0.5;
constexpr double kMaxLostShare = 0.01;
constexpr double kGainAfterLoss = 1.4;
// An exploration may cost this many plain passes more than the plan.
constexpr double kMaxExplorationCost = 0.35;
// The weight of a round in the mean gain of a draft model.
constexpr double kGainWeight = 1.0 / 16;
// A draft whose rows stay confident may be this many times longer than planned.
constexpr int kMaxTimesPlanned = 3;
// The same where one pass computes all rows of a draft, needed or not.
constexpr int kMaxTimesPlannedInOnePass = 2;

// Returns the index of the draft model's option, or -1 without one.
int ModelOptionOf(const DraftCandidate& candidate) {
  const auto option = absl::c_find_if(candidate.options, [](const DraftOption& one) {
    return one.source == DraftSource::kModel && one.max_tokens > 0;
  });
  return option == candidate.options.end() ? -1
                                           : static_cast<int>(option - candidate.options.begin());
}

}  // namespace

void SpeculationPolicy::Serialize(StateArchive* archive) {
  costs_.Serialize(archive);
  unsalted_.Serialize(archive);
}

// Returns the statistics that the next round counts towards.
TenantSpeculation* SpeculationPolicy::TenantOf(absl::Span<const DraftCandidate> candidates) {
  TenantSpeculation* tenant = &unsalted_;
  for (size_t i = 0; i < candidates.size(); ++i) {
    TenantSpeculation* of_this =
        candidates[i].tenant == nullptr ? &unsalted_ : candidates[i].tenant;
    if (i > 0 && of_this != tenant) return &mixed_;
    tenant = of_this;
  }
  return tenant;
}

bool SpeculationPolicy::ReadsPrompt(const TenantSpeculation& tenant, int num_tokens,
                                    int num_wanted) const {
  return tenant.rounds_without_model_ < TenantSpeculation::kMaxRoundsWithoutModel &&
         costs_.Reading(num_tokens) < NumExpected(num_wanted, 0) * (1.0 - 1.0 / tenant.model_gain_);
}

std::vector<DraftChoice> SpeculationPolicy::Plan(absl::Span<const DraftCandidate> candidates,
                                                 int other_rows) {
  is_probing_ = false;
  check_ = nullptr;
  DraftPlan plan = PlanDrafts(costs_, candidates, other_rows);
  std::vector<DraftChoice>& choices = plan.choices;
  bool may_choose = false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    may_choose = may_choose || (candidates[i].is_auto() && choices[i].option >= 0);
  }
  if (!may_choose) return choices;
  const auto draft_nothing = [&] {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].is_auto()) choices[i].num_tokens = 0;
    }
  };
  if (costs_.knows_pass(static_cast<int>(candidates.size()))) {
    rounds_for_a_pass_ = 0;
  } else if (rounds_for_a_pass_ < kMaxRoundsForAPass &&
             (costs_.knows_nothing() || (other_rows == 0 && measures()))) {
    ++rounds_for_a_pass_;
    draft_nothing();
    return choices;
  }
  TenantSpeculation& tenant = *TenantOf(candidates);
  if (TriesModel(candidates, other_rows, &choices)) {
    tenant.rounds_without_model_ = 0;
    return choices;
  }
  ++tenant.rounds_without_model_;
  tenant.is_on_ = plan.gain >= (tenant.is_on_ ? 1.0 : kStartingGain) && plan.gain > 1.0;
  if (!tenant.is_on_) {
    draft_nothing();
    tenant.probe_budget_ += kProbeShare;
    is_probing_ =
        Probe(candidates, other_rows + static_cast<int>(candidates.size()), &tenant, &choices);
    return choices;
  }
  check_ = &tenant.checks_[std::min<int>(std::bit_width(candidates.size() - 1),
                                         TenantSpeculation::kNumBatches - 1)];
  if (!check_->Allows(plan.gain)) {
    draft_nothing();
    return choices;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    const bool is_model = choices[i].option >= 0 &&
                          candidate.options[choices[i].option].source == DraftSource::kModel;
    if (candidate.is_auto() && !is_model && plan.gain < kGainAfterLoss &&
        candidate.lost > std::max(kMaxLost, kMaxLostShare * candidate.num_written)) {
      choices[i].num_tokens = 0;
    }
    if (choices[i].num_tokens > 0 && is_model) {
      tenant.rounds_without_model_ = 0;
      tenant.model_gain_ += kGainWeight * (plan.gain - tenant.model_gain_);
    }
  }
  if (!measures()) {  // exploring would teach nothing
    AllowStopping(plan, candidates, &choices);
    return choices;
  }
  if (++tenant.rounds_since_exploration_ >= (tenant.num_explorations_ < kFirstExplorations
                                                 ? kRoundsBetweenFirstExplorations
                                                 : kRoundsBetweenExplorations)) {
    tenant.rounds_since_exploration_ = 0;
    ++tenant.num_explorations_;
    Explore(candidates, tenant, &choices);
  } else {
    AllowStopping(plan, candidates, &choices);
  }
  return choices;
}

// Lets drafts of a model grow beyond the plan while their rows are confident, and end where they
// are not.
void SpeculationPolicy::AllowStopping(const DraftPlan& plan,
                                      absl::Span<const DraftCandidate> candidates,
                                      std::vector<DraftChoice>* choices) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    DraftChoice& choice = (*choices)[i];
    if (!candidate.is_auto() || choice.num_tokens == 0 || candidate.confidence == nullptr) continue;
    const DraftOption& option = candidate.options[choice.option];
    if (!option.can_stop || IsUntested(candidate, option)) continue;
    choice.num_tokens = option.in_one_pass ? std::min(kMaxTimesPlannedInOnePass * choice.num_tokens,
                                                      kLongestModelDraft)
                                           : kMaxTimesPlanned * choice.num_tokens;
    choice.num_tokens = std::min({choice.num_tokens, candidate.room, option.max_tokens});
    choice.stop = {.curve = candidate.confidence,
                   .min_for_row = plan.worth_a_row,
                   .min_for_step = plan.worth_a_row + plan.worth_a_step};
  }
}

// Lets the draft model draft before any of its steps was measured, if that promises a gain, even
// where a lookup promises more. Returns whether it does so in the next round.
bool SpeculationPolicy::TriesModel(absl::Span<const DraftCandidate> candidates, int other_rows,
                                   std::vector<DraftChoice>* choices) {
  if (costs_.knows_step() || !measures() || rounds_for_a_step_ >= kMaxRoundsForAStep) return false;
  const bool has_model = absl::c_any_of(candidates, [](const DraftCandidate& candidate) {
    return candidate.is_auto() && ModelOptionOf(candidate) >= 0;
  });
  if (!has_model) return false;
  std::vector<DraftCandidate> of_model(candidates.begin(), candidates.end());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_auto()) continue;
    const int model = ModelOptionOf(candidates[i]);
    of_model[i].options = candidates[i].options.subspan(std::max(model, 0), model < 0 ? 0 : 1);
  }
  DraftPlan plan = PlanDrafts(costs_, of_model, other_rows);
  if (plan.gain < kStartingGain) return false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_auto()) continue;
    const int model = ModelOptionOf(candidates[i]);
    plan.choices[i].option = model;
    if (model < 0) continue;
    plan.choices[i].num_tokens =
        std::min(plan.choices[i].num_tokens, NumTrialTokens(candidates[i].options[model]));
  }
  ++rounds_for_a_step_;
  *choices = std::move(plan.choices);
  return true;
}

// Changes the planned lengths of all candidates. A sequence without a draft begins one only if it
// has few unread tokens.
void SpeculationPolicy::Explore(absl::Span<const DraftCandidate> candidates,
                                const TenantSpeculation& tenant,
                                std::vector<DraftChoice>* choices) {
  const int change = tenant.num_explorations_ % 2 == 0 ? -1 : 1;
  const int num_sequences = static_cast<int>(candidates.size());
  int longest = 0;
  for (const DraftChoice& choice : *choices) longest = std::max(longest, choice.num_tokens);
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftChoice& choice = (*choices)[i];
    if (!candidates[i].is_auto() || choice.option < 0) continue;
    const DraftOption& option = candidates[i].options[choice.option];
    if (choice.num_tokens == 0 && costs_.Reading(option.num_unread) > 1.0) continue;
    int wanted = tenant.num_explorations_ <= kFirstExplorations
                     ? std::min(tenant.num_explorations_, 2 * longest + 1)
                     : choice.num_tokens + change;
    const auto cost = [&](int num_tokens) {
      const double drafting = option.source == DraftSource::kModel
                                  ? costs_.Drafting(option.in_one_pass, num_sequences, num_tokens)
                                  : 0.0;
      return costs_.LossOf(num_sequences, num_tokens, drafting, 0);
    };
    while (wanted > choice.num_tokens &&
           cost(wanted) - cost(choice.num_tokens) > kMaxExplorationCost) {
      --wanted;
    }
    choice.num_tokens = std::max(0, std::min({wanted, candidates[i].room, option.max_tokens}));
  }
}

// Lets the cheapest sequence draft a few tokens, for all rounds of a trial, if the budget allows
// it: with the draft model until it was tried, and with the best source afterwards. Returns whether
// the next round drafts.
bool SpeculationPolicy::Probe(absl::Span<const DraftCandidate> candidates, int num_rows,
                              TenantSpeculation* tenant, std::vector<DraftChoice>* choices) {
  const bool knows_step = costs_.knows_step();
  const int num_rounds = knows_step ? kRoundsOfTrial : 1;
  double& budget = tenant->probe_budget_;
  const bool goes_on = tenant->rounds_probed_ % kRoundsOfTrial != 0;
  double best_cost = goes_on ? std::numeric_limits<double>::max() : budget / num_rounds;
  int best = -1;
  double cheapest = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    DraftChoice& choice = (*choices)[i];
    if (!candidate.is_auto() || choice.option < 0) continue;
    if (const int model = ModelOptionOf(candidate); !knows_step && model >= 0)
      choice.option = model;
    const DraftOption& option = candidate.options[choice.option];
    const int num_tokens = NumTrialTokens(option);
    double cost = costs_.Pass(num_rows + num_tokens) - costs_.Pass(num_rows);
    if (option.source == DraftSource::kModel) {
      cost += costs_.Reading(std::max(option.num_unread - 1, 0)) +
              costs_.Drafting(option.in_one_pass, 1, num_tokens);
    }
    cheapest = cheapest == 0.0 ? cost : std::min(cheapest, cost);
    if (cost >= best_cost) continue;
    best = static_cast<int>(i);
    best_cost = cost;
  }
  budget = std::min(budget, num_rounds * std::max(cheapest, kMaxBudget));
  if (best < 0) return false;
  if (num_rounds > 1) ++tenant->rounds_probed_;
  DraftChoice& choice = (*choices)[best];
  const DraftOption& option = candidates[best].options[choice.option];
  choice.num_tokens = std::min({NumTrialTokens(option), candidates[best].room, option.max_tokens});
  budget -= best_cost;
  return choice.num_tokens > 0;
}

}  // namespace tandem
