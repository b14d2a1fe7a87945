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
// A plain round costs little and is the measure of all others.
constexpr int kRoundsBetweenPlain = 256;
// Costs follow load and context within some tens of rounds.
constexpr double kCostMemory = 0.9;

// Times are disturbed upwards only, and then much: a sample counts for at most this many times the
// estimate, and the first few for their least.
constexpr double kMostDisturbance = 1.5;

}  // namespace

void RoundCosts::Estimate::Add(double sample) {
  if (++num_samples <= kFirstSamples) {
    value = num_samples == 1 ? sample : std::min(value, sample);
    return;
  }
  sample = std::min(sample, kMostDisturbance * value);
  value = kCostMemory * value + (1.0 - kCostMemory) * sample;
}

void RoundCosts::Observe(int num_sequences, int num_draft_tokens, int num_steps,
                         absl::Duration draft_time, absl::Duration verify_time) {
  const double verify = absl::ToDoubleSeconds(verify_time);
  if (num_steps > 0) step_.Add(absl::ToDoubleSeconds(draft_time) / num_steps);
  if (num_draft_tokens == 0) {
    plain_.Add(verify);
    rounds_since_plain_ = 0;
    return;
  }
  ++rounds_since_plain_;
  if (plain_.num_samples == 0) return;
  // What a plain pass does not explain is the rows'.
  const double per_sequence_row = (verify - plain_.value) * num_sequences / num_draft_tokens;
  row_.Add(std::max(per_sequence_row, 0.0));
}

bool RoundCosts::wants_plain_round() const {
  return step_.num_samples > 0 &&
         (plain_.num_samples < kFirstSamples || rounds_since_plain_ >= kRoundsBetweenPlain);
}

double RoundCosts::RelativeCost() const { return (step_.value + row_.value) / plain_.value; }

int DraftLength::Next(const RoundCosts& costs) {
  if (fixed_ != kAuto) return fixed_;
  if (costs.wants_plain_round()) return 0;
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
