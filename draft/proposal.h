#ifndef TANDEM_DRAFT_PROPOSAL_H_
#define TANDEM_DRAFT_PROPOSAL_H_

#include <vector>

#include "model/sampling.h"
#include "tandem/draft_tokens.h"
#include "tandem/types.h"

namespace tandem {

// Tokens a drafter suggests, and how likely it was to suggest them. Reused from round to round, so
// that the rows are allocated once.
struct Proposal {
  std::vector<TokenId> tokens;
  // drawn_from[i] is the distribution tokens[i] was drawn from, exactly as drawn: all on that token
  // if it was not drawn at all. There may be more of them than tokens; those are meaningless.
  std::vector<Distribution> drawn_from;

  // Of a draft model on the host: the confidence of each token's row (ConfidenceCurve); its steps,
  // which may be one more than tokens; and whether it ended early, as DraftRequest::stop says.
  std::vector<float> confidences;
  int num_steps = 0;
  bool has_stopped = false;

  void Clear() {
    tokens.clear();
    confidences.clear();
    num_steps = 0;
    has_stopped = false;
  }
  // Adds a token. The caller fills the distribution returned by NextDistribution() first.
  Distribution* NextDistribution() { return DistributionAt(static_cast<int>(tokens.size())); }
  Distribution* DistributionAt(int i) {
    while (static_cast<int>(drawn_from.size()) <= i) drawn_from.emplace_back();
    return &drawn_from[i];
  }
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_PROPOSAL_H_
