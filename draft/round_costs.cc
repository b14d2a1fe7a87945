#include "draft/round_costs.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// Speed and context change within a few rounds, relations within some hundred. Rounds of one size
// say how fast the machine is and nothing of relations: those show where the size changes, against
// the round just before.
constexpr double kLevelWeight = 0.25;
constexpr double kLevelWeightAtChange = 0.1;
constexpr double kStepWeight = 0.1;
constexpr double kRelationWeight = 0.05;
// On a shared machine times are disturbed upwards, and then much: a measurement counts for at most
// this many times what was expected.
constexpr double kMostDisturbance = 1.5;

}  // namespace

void RoundCosts::Observe(const Round& round) {
  const double verify = absl::ToDoubleSeconds(round.verify_time);
  if (level_ == 0.0) level_ = verify;
  const bool is_new = !pass_.is_measured(round.num_rows);
  const double expected = level_ * pass_.At(round.num_rows);
  const double measured = is_new ? verify : std::min(verify, kMostDisturbance * expected);
  const bool is_change = round.num_rows != last_num_rows_;
  if (is_change) pass_.Add(round.num_rows, measured / level_, kRelationWeight);
  if (!is_new) {
    level_ *= std::pow(measured / expected, is_change ? kLevelWeightAtChange : kLevelWeight);
  }
  last_num_rows_ = round.num_rows;

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

void RoundCosts::ObserveReading(int num_tokens, absl::Duration time) {
  if (level_ == 0.0) return;
  const double per_token = absl::ToDoubleSeconds(time) / level_ / num_tokens;
  ++num_readings_;
  reading_ = num_readings_ == 1 ? per_token : reading_ + kStepWeight * (per_token - reading_);
}

}  // namespace tandem
