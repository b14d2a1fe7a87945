#ifndef TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_
#define TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_

#include <array>

#include "draft/drafter.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// The chance that draft token i is kept once those before it were, by depth i and by what speaks
// for the draft, from the rounds so far: counts with exponential forgetting, shrunk to a wider
// estimate. Thread-compatible.
class AcceptanceEstimate {
 public:
  static constexpr int kNumDepths = 16;  // deeper tokens are taken for like the last

  // A draft of this kind of which `num_verified` tokens were verified and `num_accepted` kept:
  // token i was tested if those before it were kept.
  void Observe(const DraftOption& kind, int num_verified, int num_accepted);

  // Chances of keeping the first 1, 2, ..., `survival.size()` tokens, never rising. `wider` is what
  // this estimate is shrunk to; null for a general one.
  void Survival(const DraftOption& kind, const AcceptanceEstimate* wider,
                absl::Span<double> survival) const;

  void Serialize(StateArchive* archive);

 private:
  using ByDepth = std::array<KeptCounts, kNumDepths>;
  static int IndexOf(const DraftOption& kind);

  std::array<ByDepth, kNumDraftSources * kNumEvidence> counts_{};  // by source and evidence
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_ACCEPTANCE_ESTIMATE_H_
