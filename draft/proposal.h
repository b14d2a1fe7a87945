#ifndef TANDEM_DRAFT_PROPOSAL_H_
#define TANDEM_DRAFT_PROPOSAL_H_

#include <vector>

#include "model/sampling.h"
#include "tandem/draft_tokens.h"
#include "tandem/types.h"

namespace tandem {

// The draft tokens of one sequence and the distributions that they were drawn from. Reused from
// round to round, so that the rows are allocated once.
struct Proposal {
  std::vector<TokenId> tokens;
  // drawn_from[i] is exactly the distribution that tokens[i] was drawn from. A token that was not
  // drawn has all of the probability. There may be more entries than tokens; ignore the excess.
  std::vector<Distribution> drawn_from;

  // Set by a draft model whose rows are on the host: the confidence of each token's row
  // (ConfidenceCurve), the number of steps (up to one more than tokens; one if all rows are of one
  // pass), and whether DraftRequest::stop ended the draft early.
  std::vector<float> confidences;
  int num_steps = 0;
  int num_slots = 0;  // rows that one pass computed for this draft (DraftOption::in_one_pass)
  bool has_stopped = false;

  void Clear() {
    tokens.clear();
    confidences.clear();
    num_steps = 0;
    num_slots = 0;
    has_stopped = false;
  }
  // The distribution of the next token. The caller fills it in before it appends the token.
  Distribution* NextDistribution() { return DistributionAt(static_cast<int>(tokens.size())); }
  Distribution* DistributionAt(int i) {
    while (static_cast<int>(drawn_from.size()) <= i) drawn_from.emplace_back();
    return &drawn_from[i];
  }
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_PROPOSAL_H_
