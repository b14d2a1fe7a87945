#include "draft/policy/speculation_policy.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tandem {
namespace {

// Speculation starts at this predicted gain, and stops where none is left.
constexpr double kStartingGain = 1.03;
// The first rounds draft this many tokens in all, at least one for each sequence, and then none, to
// measure both costs. They are few because the beginning of an answer says little about its rest:
// 48 draft tokens there, none of them accepted, kept drafting off for the whole answer.
constexpr int kCalibrationRounds = 8;
constexpr int kCalibrationTokens = 2;
// Rounds in a row that try or look at something: the first of them are not measured.
constexpr int kRoundsOfTrial = RoundCosts::kUnmeasuredRounds + 2;
// Every so often drafts are a token longer or shorter than planned, to learn of depths and of
// passes that are never seen else. In the beginning more often, and of all lengths up to this or
// to about twice the longest planned: what is far from paying costs the more the larger the batch.
constexpr int kRoundsBetweenExplorations = 64;
constexpr int kRoundsBetweenFirstExplorations = 16;
constexpr int kFirstExplorations = 8;
// Where speculation is off, this share of the time goes into trying it.
constexpr double kProbeShare = 0.005;
constexpr int kProbeTokens = 2;
// What was saved for probes is at most the next probe's cost, or this.
constexpr double kMostBudget = 1.0;
// A draft whose rows stay sure of their tokens may be this much longer than the plan says.
constexpr int kMostTimesPlanned = 3;
// What a file may say of it.
constexpr double kLargestBudget = 1e6;

}  // namespace

int SpeculationPolicy::TemperatureBucket(float temperature) {
  return temperature < 1e-5f ? 0 : temperature <= 0.5f ? 1 : temperature <= 0.9f ? 2 : 3;
}

void SpeculationPolicy::Serialize(StateArchive* archive) {
  costs_.Serialize(archive);
  for (SpeedupMonitor& check : checks_) check.Serialize(archive);
  for (AcceptanceEstimate& estimate : general_) estimate.Serialize(archive);
  for (DraftTemperature& draft_temperature : draft_temperature_) {
    draft_temperature.Serialize(archive);
  }
  for (ConfidenceCurve& curve : confidence_) curve.Serialize(archive);
  archive->Pass(&is_on_);
  archive->Pass(0, kCalibrationRounds + kRoundsOfTrial, &rounds_calibrated_);
  // Answers may be shorter than what lies between two explorations or probes.
  archive->Pass(0, kRoundsBetweenExplorations, &rounds_since_exploration_);
  archive->Pass(0, std::numeric_limits<int>::max() - 1, &num_explorations_);
  archive->Pass(0.0, kLargestBudget, &probe_budget_);
  archive->Pass(0, kRoundsOfPatience, &rounds_without_model_);
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
  ++rounds_without_model_;
  is_on_ = plan.gain >= (is_on_ ? 1.0 : kStartingGain) && plan.gain > 1.0;
  if (!is_on_) {
    draft_nothing();
    probe_budget_ += kProbeShare;
    is_probing_ = Probe(candidates, num_rows, &choices);
    return choices;
  }
  check_ = &checks_[std::min<int>(std::bit_width(candidates.size() - 1), kNumBatches - 1)];
  if (!check_->Allows(plan.gain)) {
    draft_nothing();
    return choices;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (choices[i].num_tokens > 0 &&
        candidates[i].options[choices[i].option].source == DraftSource::kModel) {
      rounds_without_model_ = 0;
    }
  }
  if (!measures()) {  // nothing would be learned
    LetStop(plan, candidates, &choices);
    return choices;
  }
  if (++rounds_since_exploration_ >= (num_explorations_ < kFirstExplorations
                                          ? kRoundsBetweenFirstExplorations
                                          : kRoundsBetweenExplorations)) {
    rounds_since_exploration_ = 0;
    ++num_explorations_;
    Explore(candidates, &choices);
  } else {
    LetStop(plan, candidates, &choices);
  }
  return choices;
}

// What a model drafts may be longer than planned while its rows are sure of their tokens, and ends
// where they are not.
void SpeculationPolicy::LetStop(const DraftPlan& plan, absl::Span<const DraftCandidate> candidates,
                                std::vector<DraftChoice>* choices) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const DraftCandidate& candidate = candidates[i];
    DraftChoice& choice = (*choices)[i];
    if (!candidate.is_auto() || choice.num_tokens == 0 || candidate.confidence == nullptr) continue;
    const DraftOption& option = candidate.options[choice.option];
    if (!option.can_stop) continue;
    choice.num_tokens =
        std::min({kMostTimesPlanned * choice.num_tokens, candidate.room, option.max_tokens});
    choice.stop = {.curve = candidate.confidence,
                   .least_for_row = plan.worth_a_row,
                   .least_for_step = plan.worth_a_row + plan.worth_a_step};
  }
}

// The first rounds, until the costs of drafting and of not drafting are known.
bool SpeculationPolicy::Calibrates(absl::Span<const DraftCandidate> candidates, int other_rows,
                                   std::vector<DraftChoice>* choices) {
  if (!measures()) return false;
  // Passes that read prompts beside are not measured.
  const bool is_new_size =
      other_rows == 0 && !costs_.knows_pass(static_cast<int>(candidates.size()));
  if (rounds_calibrated_ >= kCalibrationRounds && !is_new_size) return false;
  const bool drafts = rounds_calibrated_ / kRoundsOfTrial % 2 == 0 &&
                      !(is_new_size && rounds_calibrated_ >= kRoundsOfTrial);
  ++rounds_calibrated_;
  const int wanted = std::max(1, kCalibrationTokens / static_cast<int>(candidates.size()));
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].is_auto()) continue;
    DraftChoice& choice = (*choices)[i];
    choice.num_tokens = 0;
    if (!drafts || choice.option < 0) continue;
    choice.num_tokens =
        std::min({wanted, candidates[i].room, candidates[i].options[choice.option].max_tokens});
  }
  return true;
}

// Other lengths than planned for everybody; whoever drafts nothing begins only if there is little
// to read for it.
void SpeculationPolicy::Explore(absl::Span<const DraftCandidate> candidates,
                                std::vector<DraftChoice>* choices) {
  const int change = num_explorations_ % 2 == 0 ? -1 : 1;
  int longest = 0;
  for (const DraftChoice& choice : *choices) longest = std::max(longest, choice.num_tokens);
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftChoice& choice = (*choices)[i];
    if (!candidates[i].is_auto() || choice.option < 0) continue;
    const DraftOption& option = candidates[i].options[choice.option];
    if (choice.num_tokens == 0 && costs_.Reading(option.num_unread) > 1.0) continue;
    const int wanted = num_explorations_ <= kFirstExplorations
                           ? std::min(num_explorations_, 2 * longest + 1)
                           : choice.num_tokens + change;
    choice.num_tokens = std::max(0, std::min({wanted, candidates[i].room, option.max_tokens}));
  }
}

// Lets the sequence that has the least to read draft a little, and again in the rounds after it, if
// the budget allows a whole trial.
bool SpeculationPolicy::Probe(absl::Span<const DraftCandidate> candidates, int num_rows,
                              std::vector<DraftChoice>* choices) {
  int best = -1;
  const bool goes_on = rounds_probed_ % kRoundsOfTrial != 0;
  double best_cost = goes_on ? std::numeric_limits<double>::max() : probe_budget_ / kRoundsOfTrial;
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
  probe_budget_ = std::min(probe_budget_, kRoundsOfTrial * std::max(cheapest, kMostBudget));
  if (best < 0) return false;
  ++rounds_probed_;
  DraftChoice& choice = (*choices)[best];
  choice.num_tokens = std::min(
      {kProbeTokens, candidates[best].room, candidates[best].options[choice.option].max_tokens});
  probe_budget_ -= best_cost;
  return choice.num_tokens > 0;
}

}  // namespace tandem
