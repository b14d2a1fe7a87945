#include "draft/policy/acceptance_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tandem {
namespace {

// A half-life of 100 tests.
constexpr double kAcceptanceMemory = 0.99309;
// Prior acceptance, with the weight of kPriorTests tests: of models trained on similar data, of
// earlier texts, and of forced or predicted tokens.
constexpr double kModelAcceptance = 0.7;
constexpr double kMemoryAcceptance = 0.4;
constexpr double kGivenAcceptance = 0.9;
constexpr double kPriorTests = 4.0;
// The same for lookups, by evidence: the first tokens that were kept in 2,200 lookups of the
// answers of SmolLM2 and Qwen2.5-Coder (tests/data/acceptance). The two differ by .08 at most.
constexpr std::array<double, kNumEvidence> kLookupAcceptance = {0.18, 0.43, 0.46, 0.70,
                                                                0.65, 0.77, 0.85, 0.96};
// A sequence starts from the wider estimate with the weight of this many tests of its own.
constexpr double kWiderTests = 24.0;
constexpr double kDoubt = 0.5;  // standard deviations

double PriorOf(const DraftOption& kind) {
  switch (kind.source) {
    case DraftSource::kModel:
      return kModelAcceptance;
    case DraftSource::kLookup:
      return kLookupAcceptance[kind.evidence];
    case DraftSource::kMemory:
    case DraftSource::kSuccessors:
      return kMemoryAcceptance;
    case DraftSource::kText:  // as a lookup of 3 to 5 tokens, or of more
      return kLookupAcceptance[kind.evidence < 2 ? 4 + kind.evidence : 6 + kind.evidence % 2];
    default:
      return kGivenAcceptance;
  }
}

}  // namespace

int AcceptanceEstimate::IndexOf(const DraftOption& kind) {
  return static_cast<int>(kind.source) * kNumEvidence + kind.evidence;
}

void AcceptanceEstimate::Observe(const DraftOption& kind, int num_verified, int num_accepted) {
  ByDepth& by_depth = counts_[IndexOf(kind)];
  const int num_tested = std::min({num_verified, num_accepted + 1, kNumDepths});
  for (int i = 0; i < num_tested; ++i) {
    by_depth[i].Observe(kAcceptanceMemory, i < num_accepted);
  }
}

void AcceptanceEstimate::Serialize(StateArchive* archive) {
  for (ByDepth& by_depth : counts_) {
    for (KeptCounts& counts : by_depth) counts.Serialize(kAcceptanceMemory, archive);
  }
}

void AcceptanceEstimate::Survival(const DraftOption& kind, const AcceptanceEstimate* wider,
                                  absl::Span<double> survival) const {
  const int index = IndexOf(kind);
  // The prior of each depth is the rate of the depth before it.
  double general = PriorOf(kind);
  double product = 1.0;
  for (size_t i = 0; i < survival.size(); ++i) {
    const size_t depth = std::min<size_t>(i, kNumDepths - 1);
    const KeptCounts& all = wider == nullptr ? counts_[index][depth] : wider->counts_[index][depth];
    general = all.Rate(general, kPriorTests);
    // A draft that was hardly tried gets the benefit of the doubt. This raises the first token
    // only, because later ones are tried anyway when the first pays.
    double rate = general;
    if (i == 0) {
      rate += kDoubt * std::sqrt(general * (1.0 - general) / (all.tested + kPriorTests));
    }
    rate = std::min(rate, 1.0);
    if (wider != nullptr) rate = counts_[index][depth].Rate(rate, kWiderTests);
    product *= rate;
    survival[i] = product;
  }
}

}  // namespace tandem
