#ifndef TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_
#define TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/round_costs.h"

namespace tandem {

class TenantSpeculation;

// A sequence that decodes in the next round.
struct DraftCandidate {
  absl::Span<const DraftOption> options;
  int draft_tokens = 0;  // as requested: a fixed k, or kAutoDraftTokens
  int room = 0;          // draft tokens that fit its length limits
  int num_wanted = 0;    // tokens it may still emit
  int num_written = 0;   // tokens it has emitted
  double lost = 0.0;     // cost of its drafts from texts beyond their tokens (RoundCosts::LossOf)
  const AcceptanceEstimate* own = nullptr;
  const AcceptanceEstimate* wider = nullptr;
  const ConfidenceCurve* confidence = nullptr;  // of model drafts; null if they never stop early
  TenantSpeculation* tenant = nullptr;          // null for requests without a salt

  bool is_auto() const { return draft_tokens == kAutoDraftTokens; }
};

// Whether so few drafts of this kind were verified that little is known about the next. Such a
// model must pay for its reading twice, and drafts NumTrialTokens at most.
bool IsUntested(const DraftCandidate& candidate, const DraftOption& option);

// The longest draft of a model unless k is fixed. Lookups cost only their rows.
inline constexpr int kLongestModelDraft = 16;
// The number of tokens in a draft that only shows what such drafts cost and how many are kept.
inline int NumTrialTokens(const DraftOption& option) { return option.in_one_pass ? 4 : 2; }

// The choice for one candidate: `num_tokens` from options[option], or no draft.
struct DraftChoice {
  int option = -1;
  int num_tokens = 0;
  DraftStop stop = {};
};

struct DraftPlan {
  std::vector<DraftChoice> choices;
  double gain = 1.0;  // expected tokens per time, relative to the same round without auto drafts
  // The minimum chance of being kept at which a token pays for its row in the target's pass, and
  // for its step of the draft model.
  double worth_a_row = 0.0;
  double worth_a_step = 0.0;
};

// How many more tokens an answer is expected to have that has emitted `num_written` and may emit
// `num_wanted` more: as many as it has, and 64 more.
inline int NumExpected(int num_wanted, int num_written) {
  constexpr int kAtFirst = 64;
  return std::min(num_wanted, kAtFirst + num_written);
}

// Chooses draft lengths that maximise the round's expected tokens per time, or the shortest drafts
// within 1 % of the maximum. Tries every number of rows and every number of draft steps, each with
// the best set of prefixes of the survival curves. Exact if a draft step costs the same for all
// numbers of sequences (docs/drafting/draft_length.md). Where one pass drafts all tokens, there are
// no steps to choose, and a token is a row of that pass (docs/drafting/parallel_drafts.md).
// `other_rows`: rows of the pass that are not the candidates'.
DraftPlan PlanDrafts(const RoundCosts& costs, absl::Span<const DraftCandidate> candidates,
                     int other_rows);

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_
