#ifndef TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
#define TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_

#include <array>

#include "draft/policy/kept_counts.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// How often the target keeps a draft model's token, by the confidence of the draft's row: the
// softmax probability of its most likely token. Learned with exponential forgetting; before
// anything was seen, a token is kept as often as the confidence says. Thread-compatible.
class ConfidenceCurve {
 public:
  // A token drawn from a row of this confidence, in [0, 1], was tested: those before it were kept.
  void Observe(float confidence, bool is_accepted);
  // The chance that such a token is kept once those before it were.
  double Acceptance(float confidence) const;
  // The same of a token whose row is not known yet.
  double MeanAcceptance() const;

  void Serialize(StateArchive* archive);

 private:
  // Where the next bucket begins.
  static constexpr std::array<float, 11> kEdges = {0.1f, 0.2f, 0.3f, 0.4f,  0.5f, 0.6f,
                                                   0.7f, 0.8f, 0.9f, 0.95f, 0.98f};
  static size_t BucketOf(float confidence);

  std::array<KeptCounts, kEdges.size() + 1> buckets_{};
  KeptCounts all_{};
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_CONFIDENCE_CURVE_H_
