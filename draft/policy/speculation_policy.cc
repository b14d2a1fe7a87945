#include "draft/policy/speculation_policy.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

// Speculation starts at this predicted gain, and stops at a gain of 1.
constexpr double kStartingGain = 1.03;
// Calibration: the first rounds draft this many tokens in all, at least one per sequence, and the
// next ones draft nothing, to measure both costs. It is short because the beginning of an answer
// says little about the rest: 48 draft tokens there, none of them accepted, kept drafting off for
// the whole answer.
constexpr int kCalibrationRounds = 8;
constexpr int kCalibrationTokens = 2;
// A draft step of unknown cost counts as a whole pass, so the plan never tries the model if lookups
// match from the first round on. After kMaxRoundsWithoutModel rounds without the model, at most
// this many rounds draft with it until a step has been measured.
constexpr int kRoundsForAStep = 24;
// The number of consecutive rounds in a trial. The first of them are not measured.
constexpr int kRoundsOfTrial = RoundCosts::kUnmeasuredRounds + 2;
constexpr int kMaxCalibrationRounds = kCalibrationRounds + kRoundsOfTrial + kRoundsForAStep;
// Exploration: at these intervals drafts are a token longer or shorter than planned, to measure
// depths and passes that would otherwise never occur. The first explorations come sooner. They try
// lengths up to kFirstExplorations, but at most about twice the longest planned length, because
// drafts that do not pay cost more the larger the batch.
constexpr int kRoundsBetweenExplorations = 64;
constexpr int kRoundsBetweenFirstExplorations = 16;
constexpr int kFirstExplorations = 8;
// While speculation is off, this share of the time is spent on probes.
constexpr double kProbeShare = 0.005;
constexpr int kProbeTokens = 2;
// The saved budget, per round of a trial, is at most the cost of the cheapest probe or this,
// whichever is larger.
constexpr double kMaxBudget = 1.0;
// A draft whose rows stay confident may be this many times longer than planned.
constexpr int kMaxTimesPlanned = 3;

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
  archive->Pass(0, kMaxCalibrationRounds, &rounds_calibrated_);
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
  const int num_rows = other_rows + static_cast<int>(candidates.size());
  if (Calibrates(candidates, other_rows, &choices)) return choices;

  const auto draft_nothing = [&] {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (candidates[i].is_auto()) choices[i].num_tokens = 0;
    }
  };
  TenantSpeculation& tenant = *TenantOf(candidates);
  ++tenant.rounds_without_model_;
  tenant.is_on_ = plan.gain >= (tenant.is_on_ ? 1.0 : kStartingGain) && plan.gain > 1.0;
  if (!tenant.is_on_) {
    draft_nothing();
    tenant.probe_budget_ += kProbeShare;
    is_probing_ = Probe(candidates, num_rows, &tenant, &choices);
    return choices;
  }
  check_ = &tenant.checks_[std::min<int>(std::bit_width(candidates.size() - 1),
                                         TenantSpeculation::kNumBatches - 1)];
  if (!check_->Allows(plan.gain)) {
    draft_nothing();
    return choices;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (choices[i].num_tokens > 0 &&
        candidates[i].options[choices[i].option].source == DraftSource::kModel) {
      tenant.rounds_without_model_ = 0;
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
    if (!option.can_stop) continue;
    choice.num_tokens =
        std::min({kMaxTimesPlanned * choice.num_tokens, candidate.room, option.max_tokens});
    choice.stop = {.curve = candidate.confidence,
                   .min_for_row = plan.worth_a_row,
                   .min_for_step = plan.worth_a_row + plan.worth_a_step};
  }
}

// Plans calibration rounds, until the costs of rounds with and without drafts are known. Returns
// whether the next round is one.
bool SpeculationPolicy::Calibrates(absl::Span<const DraftCandidate> candidates, int other_rows,
                                   std::vector<DraftChoice>* choices) {
  if (!measures()) return false;
  // Passes that also read prompts are not measured.
  const bool is_new_size =
      other_rows == 0 && !costs_.knows_pass(static_cast<int>(candidates.size()));
  const bool is_over = rounds_calibrated_ >= kCalibrationRounds && !is_new_size;
  const bool wants_step = is_over && !costs_.knows_step() &&
                          !TenantOf(candidates)->reads_prompts() &&
                          rounds_calibrated_ < kMaxCalibrationRounds &&
                          absl::c_any_of(candidates, [](const DraftCandidate& candidate) {
                            return candidate.is_auto() && ModelOptionOf(candidate) >= 0;
                          });
  if (is_over && !wants_step) return false;
  const bool drafts = wants_step || (rounds_calibrated_ / kRoundsOfTrial % 2 == 0 &&
                                     !(is_new_size && rounds_calibrated_ >= kRoundsOfTrial));
  if (rounds_calibrated_ < kMaxCalibrationRounds) ++rounds_calibrated_;
  const int wanted = std::max(1, kCalibrationTokens / static_cast<int>(candidates.size()));
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_auto()) continue;
    DraftChoice& choice = (*choices)[i];
    choice.num_tokens = 0;
    if (const int model = ModelOptionOf(candidates[i]); wants_step && model >= 0) {
      choice.option = model;
    }
    if (!drafts || choice.option < 0) continue;
    choice.num_tokens =
        std::min({wanted, candidates[i].room, candidates[i].options[choice.option].max_tokens});
  }
  return true;
}

// Changes the planned lengths of all candidates. A sequence without a draft begins one only if it
// has few unread tokens.
void SpeculationPolicy::Explore(absl::Span<const DraftCandidate> candidates,
                                const TenantSpeculation& tenant,
                                std::vector<DraftChoice>* choices) {
  const int change = tenant.num_explorations_ % 2 == 0 ? -1 : 1;
  int longest = 0;
  for (const DraftChoice& choice : *choices) longest = std::max(longest, choice.num_tokens);
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftChoice& choice = (*choices)[i];
    if (!candidates[i].is_auto() || choice.option < 0) continue;
    const DraftOption& option = candidates[i].options[choice.option];
    if (choice.num_tokens == 0 && costs_.Reading(option.num_unread) > 1.0) continue;
    const int wanted = tenant.num_explorations_ <= kFirstExplorations
                           ? std::min(tenant.num_explorations_, 2 * longest + 1)
                           : choice.num_tokens + change;
    choice.num_tokens = std::max(0, std::min({wanted, candidates[i].room, option.max_tokens}));
  }
}

// Lets the cheapest sequence draft a few tokens, for all rounds of a trial, if the budget allows
// it. Returns whether the next round drafts.
bool SpeculationPolicy::Probe(absl::Span<const DraftCandidate> candidates, int num_rows,
                              TenantSpeculation* tenant, std::vector<DraftChoice>* choices) {
  int best = -1;
  double& budget = tenant->probe_budget_;
  const bool goes_on = tenant->rounds_probed_ % kRoundsOfTrial != 0;
  double best_cost = goes_on ? std::numeric_limits<double>::max() : budget / kRoundsOfTrial;
  double cheapest = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    if (!candidate.is_auto() || (*choices)[i].option < 0) continue;
    const DraftOption& option = candidate.options[(*choices)[i].option];
    double cost = costs_.Pass(num_rows + kProbeTokens) - costs_.Pass(num_rows);
    if (option.source == DraftSource::kModel) {
      cost += costs_.Reading(std::max(option.num_unread - 1, 0)) + kProbeTokens * costs_.Step(1);
    }
    cheapest = cheapest == 0.0 ? cost : std::min(cheapest, cost);
    if (cost >= best_cost) continue;
    best = static_cast<int>(i);
    best_cost = cost;
  }
  budget = std::min(budget, kRoundsOfTrial * std::max(cheapest, kMaxBudget));
  if (best < 0) return false;
  ++tenant->rounds_probed_;
  DraftChoice& choice = (*choices)[best];
  choice.num_tokens = std::min(
      {kProbeTokens, candidates[best].room, candidates[best].options[choice.option].max_tokens});
  budget -= best_cost;
  return choice.num_tokens > 0;
}

}  // namespace tandem
