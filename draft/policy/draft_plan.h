#ifndef TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_
#define TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_

#include <vector>

#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/round_costs.h"

namespace tandem {

// A sequence that decodes in the next round.
struct DraftCandidate {
  absl::Span<const DraftOption> options;
  int draft_tokens = 0;  // as asked for: a fixed k, or kAutoDraftTokens
  int room = 0;          // the most tokens that fit its length limits
  int num_wanted = 0;    // tokens it may still emit: what reading for a draft can pay off in
  const AcceptanceEstimate* own = nullptr;
  const AcceptanceEstimate* wider = nullptr;
  const ConfidenceCurve* confidence = nullptr;  // of models' drafts; null if they never stop early

  bool is_auto() const { return draft_tokens == kAutoDraftTokens; }
};

// What a candidate does: `num_tokens` by options[option], or nothing.
struct DraftChoice {
  int option = -1;
  int num_tokens = 0;
  DraftStop stop = {};
};

struct DraftPlan {
  std::vector<DraftChoice> choices;
  double gain = 1.0;  // expected tokens per time, relative to the same round with no auto draft
  // The least chance of being kept at which a token pays for its row of the target's pass, and
  // for its step of the draft model.
  double worth_a_row = 0.0;
  double worth_a_step = 0.0;
};

// The choices that make the round's expected tokens per time the largest, or the shortest drafts
// within 1 % of it: of all prefixes of all survival curves the best set for every number of rows
// and every number of draft steps. Exact while a draft step costs the same for all numbers of
// sequences (docs/draft_length.md).
// `other_rows`: rows of the pass beside the candidates'.
DraftPlan PlanDrafts(const RoundCosts& costs, absl::Span<const DraftCandidate> candidates,
                     int other_rows);

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_DRAFT_PLAN_H_
