#ifndef TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_
#define TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_

#include <array>

#include "draft/drafter.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// Estimates the chance that draft token i is kept if those before it were, by depth i and by source
// and evidence of the draft. Learned from rounds: counts with exponential forgetting, shrunk
// towards a wider estimate. Thread-compatible.
class AcceptanceEstimate {
 public:
  static constexpr int kNumDepths = 16;  // deeper tokens are treated like the last

  // Records a draft of this kind: `num_verified` tokens were verified and `num_accepted` kept.
  // Token i was tested if those before it were kept.
  void Observe(const DraftOption& kind, int num_verified, int num_accepted);

  // Fills in the chances of keeping the first 1, 2, ..., `survival.size()` tokens, which never
  // rise. Shrinks this estimate towards `wider`; null for an estimate without a wider one.
  void Survival(const DraftOption& kind, const AcceptanceEstimate* wider,
                absl::Span<double> survival) const;

  // Drafts of this kind that were verified, the older ones with less weight.
  double NumTested(const DraftOption& kind) const { return counts_[IndexOf(kind)][0].tested; }

  void Serialize(StateArchive* archive);

 private:
  using ByDepth = std::array<KeptCounts, kNumDepths>;
  static int IndexOf(const DraftOption& kind);

  std::array<ByDepth, kNumDraftSources * kNumEvidence> counts_{};  // by source and evidence
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_
