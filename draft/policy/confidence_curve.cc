#include "draft/policy/confidence_curve.h"

#include <algorithm>

namespace tandem {
namespace {

// A half-life of 200 tests of a bucket.
constexpr double kConfidenceMemory = 0.99654;
// The weight, in tests, of the confidence as a prior.
constexpr double kConfidenceTests = 8.0;
// The prior for a token whose row is not known, as in AcceptanceEstimate.
constexpr double kMeanAcceptance = 0.7;

}  // namespace

size_t ConfidenceCurve::BucketOf(float confidence) {
  return std::upper_bound(kEdges.begin(), kEdges.end(), confidence) - kEdges.begin();
}

void ConfidenceCurve::Observe(float confidence, bool is_accepted, bool is_mask) {
  Buckets& buckets = is_mask ? of_masks_ : of_tokens_;
  buckets[BucketOf(confidence)].Observe(kConfidenceMemory, is_accepted);
  all_.Observe(kConfidenceMemory, is_accepted);
}

double ConfidenceCurve::Acceptance(float confidence, bool is_mask) const {
  const Buckets& buckets = is_mask ? of_masks_ : of_tokens_;
  return buckets[BucketOf(confidence)].Rate(confidence, kConfidenceTests);
}

double ConfidenceCurve::MeanAcceptance() const {
  return all_.Rate(kMeanAcceptance, kConfidenceTests);
}

void ConfidenceCurve::Serialize(StateArchive* archive) {
  for (Buckets* const buckets : {&of_tokens_, &of_masks_}) {
    for (KeptCounts& counts : *buckets) counts.Serialize(kConfidenceMemory, archive);
  }
  all_.Serialize(kConfidenceMemory, archive);
}

}  // namespace tandem
