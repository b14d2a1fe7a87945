#include "draft/policy/confidence_curve.h"

#include <algorithm>

namespace tandem {
namespace {

// A half-life of 200 tests of a bucket.
constexpr double kConfidenceMemory = 0.99654;
constexpr double kMostConfidenceTests = 1.0 / (1.0 - kConfidenceMemory);
// What the confidence itself says counts as much as so many tests.
constexpr double kConfidenceTests = 8.0;
// What a token whose row is not known is taken for at first, as in AcceptanceEstimate.
constexpr double kMeanAcceptance = 0.7;

}  // namespace

size_t ConfidenceCurve::BucketOf(float confidence) {
  return std::upper_bound(kEdges.begin(), kEdges.end(), confidence) - kEdges.begin();
}

void ConfidenceCurve::Observe(float confidence, bool is_accepted) {
  for (Counts* counts : {&buckets_[BucketOf(confidence)], &all_}) {
    counts->tested = kConfidenceMemory * counts->tested + 1.0;
    counts->accepted = kConfidenceMemory * counts->accepted + (is_accepted ? 1.0 : 0.0);
  }
}

double ConfidenceCurve::Acceptance(float confidence) const {
  const Counts& counts = buckets_[BucketOf(confidence)];
  return (counts.accepted + kConfidenceTests * confidence) / (counts.tested + kConfidenceTests);
}

double ConfidenceCurve::MeanAcceptance() const {
  return (all_.accepted + kConfidenceTests * kMeanAcceptance) / (all_.tested + kConfidenceTests);
}

void ConfidenceCurve::Serialize(StateArchive* archive) {
  const auto pass = [archive](Counts* counts) {
    archive->Pass(0.0, kMostConfidenceTests, &counts->tested);
    archive->Pass(0.0, counts->tested, &counts->accepted);
  };
  for (Counts& counts : buckets_) pass(&counts);
  pass(&all_);
}

}  // namespace tandem
