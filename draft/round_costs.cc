#include "draft/round_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

// How fast the machine is changes within some ten rounds, and so does what a step costs. Rounds of
// one size say nothing of relations: those show where the size changes, against the round before.
constexpr double kLevelWeight = 0.25;
constexpr double kLevelWeightAtChange = 0.1;
constexpr double kStepWeight = 0.1;
constexpr double kRelationWeight = 0.05;
// On a shared machine times are disturbed upwards, and then much: a measurement counts for at most
// so much more than what was expected, or less; in logarithms.
constexpr double kMostSurprise = 0.25;
constexpr double kMostDisturbance = 1.5;

}  // namespace

void RoundCosts::Observe(const Round& round) {
  ObservePass(round.num_rows, absl::ToDoubleSeconds(round.verify_time));
  if (round.num_steps == 0) return;
  const double draft = absl::ToDoubleSeconds(round.draft_time) / level_;
  const double reading = num_readings_ > 0 ? reading_ * round.num_unread : 0.0;
  // A draft that was mostly reading says little of the steps.
  if (num_steps_seen_ > 0 && reading > 0.5 * draft) return;
  double step = std::max(draft - reading, 0.0) / round.num_steps;
  if (step_.is_measured(round.num_draft_sequences)) {
    step = std::min(step, kMostDisturbance * step_.At(round.num_draft_sequences));
  }
  step_.Add(round.num_draft_sequences, step, kStepWeight);
  ++num_steps_seen_;
}

void RoundCosts::ObservePass(int num_rows, double seconds) {
  if (level_ == 0.0) level_ = seconds;
  const int last = std::exchange(last_num_rows_, num_rows);
  if (pass_.num_samples(num_rows) < 2) return pass_.Add(num_rows, seconds / level_, 1.0);
  const double surprise =
      std::clamp(std::log(seconds / (level_ * pass_.At(num_rows))), -kMostSurprise, kMostSurprise);
  const bool is_change = num_rows != last;
  level_ *= std::exp((is_change ? kLevelWeightAtChange : kLevelWeight) * surprise);
  if (!is_change) return;
  // To both alike, so that what every change takes, and what makes times differ from the level
  // always, cancels out between changes there and back.
  pass_.Scale(num_rows, std::exp(kRelationWeight * surprise));
  pass_.Scale(last, std::exp(-kRelationWeight * surprise));
}

void RoundCosts::ObserveReading(int num_tokens, absl::Duration time) {
  if (level_ == 0.0) return;
  const double per_token = absl::ToDoubleSeconds(time) / level_ / num_tokens;
  ++num_readings_;
  reading_ = num_readings_ == 1 ? per_token : reading_ + kStepWeight * (per_token - reading_);
}

}  // namespace tandem
