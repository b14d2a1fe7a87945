#include "draft/draft_length.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr int kLongest = 16;           // tokens that kAuto proposes at most
constexpr int kBeforeMeasurement = 4;  // until the costs are known
// Speculation is worth its trouble from this predicted speed-up on.
constexpr double kLeastGain = 1.03;
constexpr int kRoundsBetweenProbes = 64;
constexpr int kProbeLength = 2;
// Acceptance: a half-life of 200 tested tokens, shrunk to 0.7 as if 8 tests had shown it.
constexpr double kForgetting = 0.99654;
constexpr double kPriorTests = 8.0;
constexpr double kPriorAcceptance = 0.7;
// Costs follow load and context within some tens of rounds.
constexpr double kCostMemory = 0.9;

void Blend(double sample, double* estimate) {
  *estimate = *estimate == 0.0 ? sample : kCostMemory * *estimate + (1.0 - kCostMemory) * sample;
}

}  // namespace

void RoundCosts::Observe(int num_sequences, int num_draft_tokens, int num_steps,
                         absl::Duration draft_time, absl::Duration verify_time) {
  const double verify = absl::ToDoubleSeconds(verify_time);
  if (num_steps > 0) Blend(absl::ToDoubleSeconds(draft_time) / num_steps, &step_);
  if (num_draft_tokens == 0) {
    Blend(verify, &plain_);
    return;
  }
  // Only what a plain pass does not explain is the rows'.
  if (plain_ == 0.0) plain_ = verify;
  plain_ = std::min(plain_, verify);
  const double per_sequence_row = (verify - plain_) * num_sequences / num_draft_tokens;
  Blend(std::max(per_sequence_row, 1e-9), &row_);
}

double RoundCosts::RelativeCost() const { return (step_ + row_) / plain_; }

int DraftLength::Next(const RoundCosts& costs) {
  if (fixed_ != kAuto) return fixed_;
  if (!costs.known()) return kBeforeMeasurement;
  const double alpha = (accepted_ + kPriorTests * kPriorAcceptance) / (tested_ + kPriorTests);
  const double cost = costs.RelativeCost();
  int best = 0;
  double best_rate = kLeastGain;
  double expected = 1.0;
  double survival = 1.0;
  for (int k = 1; k <= kLongest; ++k) {
    survival *= alpha;
    expected += survival;
    const double rate = expected / (1.0 + k * cost);
    if (rate > best_rate) {
      best_rate = rate;
      best = k;
    }
  }
  if (best > 0) {
    rounds_without_draft_ = 0;
    return best;
  }
  if (++rounds_without_draft_ % kRoundsBetweenProbes == 0) return kProbeLength;
  return 0;
}

void DraftLength::Observe(int num_tested, int num_accepted) {
  const double memory = std::pow(kForgetting, num_tested);
  tested_ = tested_ * memory + num_tested;
  accepted_ = accepted_ * memory + num_accepted;
}

}  // namespace tandem
