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

void ConfidenceCurve::Observe(float confidence, bool is_accepted) {
  buckets_[BucketOf(confidence)].Observe(kConfidenceMemory, is_accepted);
  all_.Observe(kConfidenceMemory, is_accepted);
}

double ConfidenceCurve::Acceptance(float confidence) const {
  return buckets_[BucketOf(confidence)].Rate(confidence, kConfidenceTests);
}

double ConfidenceCurve::MeanAcceptance() const {
  return all_.Rate(kMeanAcceptance, kConfidenceTests);
}

void ConfidenceCurve::Serialize(StateArchive* archive) {
  for (KeptCounts& counts : buckets_) counts.Serialize(kConfidenceMemory, archive);
  all_.Serialize(kConfidenceMemory, archive);
}

}  // namespace tandem
