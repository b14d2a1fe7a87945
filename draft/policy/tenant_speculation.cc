#include "draft/policy/tenant_speculation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/instant.h"
#include "draft/policy/round_costs.h"

namespace tandem {
namespace {

// The first rounds after a change still show the state before it.
constexpr int kUncounted = RoundCosts::kUnmeasuredRounds;
// Speculation is turned on at this mean gain, and off at a gain of 1.
constexpr double kMinGain = 1.02;
// The first comparisons come sooner. A machine that changes its speed distorts comparisons, so each
// is clamped to kMaxLogGain, as a logarithm, and the last twelve count most.
constexpr int kFirstComparisons = 4;
constexpr double kMaxLogGain = 0.3;
constexpr double kMinWeight = 1.0 / 12;
// Stretches between exceptions: with a gain, by its size, and without one (rest).
constexpr int kBetweenFirst = 3;
constexpr int kBetweenFirstIfClear = 5;
constexpr int kBetweenIfClose = 7;
constexpr int kBetweenIfClear = 127;
constexpr int kShortestRest = 15;
constexpr int kLongestRest = 255;
// The predicted gain is averaged over about thirty rounds.
constexpr double kPredictionWeight = 1.0 / 32;
// The range of predicted gains that a file may hold.
constexpr double kSmallestGain = 1e-3;
constexpr double kLargestGain = 1e3;

// Bounds of the numbers in a file: the budget for probes,
constexpr double kLargestBudget = 1e6;
// and the rounds since an exploration.
constexpr int kMaxRoundsSince = 64;

}  // namespace

bool SpeedupMonitor::Allows(double predicted_gain) {
  if (rounds_before_checks_ < 0) {
    rounds_before_checks_ = predicted_gain >= kClearGain ? kRoundsBeforeChecks : 0;
    predicted_ = predicted_gain;
  }
  predicted_ += kPredictionWeight * (predicted_gain - predicted_);
  if (!pays_ && predicted_ > kMuchMore * refused_) *this = SpeedupMonitor();
  const bool is_exception = usual_left_ == 0;
  return pays_ != is_exception;
}

void SpeedupMonitor::Observe(int num_tokens, absl::Duration time) {
  if (rounds_before_checks_ > 0) {
    --rounds_before_checks_;
    return;
  }
  if (++num_rounds_ > kUncounted && CanBeElapsed(time)) {
    current_.tokens += num_tokens;
    current_.seconds += absl::ToDoubleSeconds(time);
  }
  if (num_rounds_ == kStretch) EndStretch();
}

void SpeedupMonitor::EndStretch() {
  const Sum sum = current_;
  current_ = {};
  num_rounds_ = 0;
  if (usual_left_ == 0) {
    exception_ = sum;
    has_exception_ = true;
    usual_left_ = StretchesUntilException();
    return;
  }
  if (has_exception_) Compare(sum);
  has_exception_ = false;
  before_ = sum;
  --usual_left_;
}

void SpeedupMonitor::Compare(const Sum& after) {
  const double usual = (before_.tokens + after.tokens) / (before_.seconds + after.seconds);
  const double ratio = usual / (exception_.tokens / exception_.seconds);
  if (!std::isfinite(ratio) || ratio <= 0.0) return;  // a stretch without tokens or times
  const double gain = std::clamp(std::log(pays_ ? ratio : 1.0 / ratio), -kMaxLogGain, kMaxLogGain);
  ++num_compared_;
  mean_ += std::max(1.0 / num_compared_, kMinWeight) * (gain - mean_);
  if (num_compared_ < kFirstComparisons) return;
  const bool pays = mean_ > (pays_ ? 0.0 : std::log(kMinGain));
  if (pays != pays_) {
    rest_ = kShortestRest;
    refused_ = predicted_;
  }
  pays_ = pays;
}

int SpeedupMonitor::StretchesUntilException() {
  const bool is_clear = (num_compared_ > 0 ? mean_ : std::log(predicted_)) > std::log(kClearGain);
  if (num_compared_ < kFirstComparisons) return is_clear ? kBetweenFirstIfClear : kBetweenFirst;
  if (pays_) return is_clear ? kBetweenIfClear : kBetweenIfClose;
  const int rest = rest_;
  rest_ = std::min(2 * rest_, kLongestRest);
  return rest;
}

void SpeedupMonitor::Serialize(StateArchive* archive) {
  archive->Pass(&pays_);
  archive->Pass(-1, kRoundsBeforeChecks, &rounds_before_checks_);
  archive->Pass(kSmallestGain, kLargestGain, &predicted_);
  archive->Pass(kSmallestGain, kLargestGain, &refused_);
  archive->Pass(-kMaxLogGain, kMaxLogGain, &mean_);
  archive->Pass(0, std::numeric_limits<int>::max() - 1, &num_compared_);
  archive->Pass(0, kLongestRest, &rest_);
  archive->Pass(0, kLongestRest, &usual_left_);
  if (!archive->is_reading() || pays_) return;
  // The machine may have been busy when speculation was turned off, which distorts comparisons. So
  // a restored refusal is checked soon, and few comparisons can change it.
  num_compared_ = std::min(num_compared_, kFirstComparisons / 2);
  usual_left_ = std::min(usual_left_, 1);
  rest_ = std::min(rest_, kShortestRest);
}

int TenantSpeculation::TemperatureBucket(float temperature) {
  return temperature < 1e-5f ? 0 : temperature <= 0.5f ? 1 : temperature <= 0.9f ? 2 : 3;
}

void TenantSpeculation::Serialize(StateArchive* archive) {
  for (SpeedupMonitor& check : checks_) check.Serialize(archive);
  for (AcceptanceEstimate& estimate : general_) estimate.Serialize(archive);
  for (DraftTemperature& draft_temperature : draft_temperature_) {
    draft_temperature.Serialize(archive);
  }
  for (ConfidenceCurve& curve : confidence_) curve.Serialize(archive);
  archive->Pass(&is_on_);
  // Kept because answers may be shorter than the interval between two explorations or probes.
  archive->Pass(0, kMaxRoundsSince, &rounds_since_exploration_);
  archive->Pass(0, std::numeric_limits<int>::max() - 1, &num_explorations_);
  archive->Pass(kFirstProbeBudget, kLargestBudget, &probe_budget_);
  archive->Pass(0, kMaxRoundsWithoutModel, &rounds_without_model_);
  archive->Pass(1.0, kLargestGain, &model_gain_);
}

}  // namespace tandem
