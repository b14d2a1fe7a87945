#include "draft/policy/round_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/instant.h"

namespace tandem {
namespace {

// How fast the machine is changes within some ten rounds, and so does what a step costs. Rounds of
// one size say nothing of relations: those show where the size changes, against the round before.
constexpr double kLevelWeight = 0.25;
constexpr double kLevelWeightAtChange = 0.1;
constexpr double kStepWeight = 0.1;
constexpr double kRelationWeight = 0.1;
// On a shared machine times are disturbed upwards, and then much: a measurement counts for at most
// so much more than what was expected, or less; in logarithms. Of relations that were seldom seen
// nothing is expected yet.
constexpr double kMostSurprise = 0.25;
constexpr double kMostSurpriseOfNew = 1.0;
constexpr int kNewComparisons = 8;
constexpr double kMostDisturbance = 1.5;
// Bounds of what a file may say.
constexpr double kLargestReading = 1e9;
constexpr int kManySeen = std::numeric_limits<int>::max() - 1;

}  // namespace

void RoundCosts::Observe(const Round& round) {
  const bool is_alike = std::exchange(last_was_plain_, round.is_plain) == round.is_plain;
  num_alike_ = is_alike ? std::min(num_alike_ + 1, kUnmeasuredRounds) : 0;
  if (num_alike_ < kUnmeasuredRounds || !CanBeElapsed(round.verify_time)) return;
  ObservePass(round.num_rows, absl::ToDoubleSeconds(round.verify_time));
  if (round.num_steps == 0 || !CanBeElapsed(round.draft_time)) return;
  const double draft = absl::ToDoubleSeconds(round.draft_time) / level_;
  const double reading = num_readings_ > 0 ? reading_ * round.num_unread : 0.0;
  // A draft that was mostly reading says little of the steps.
  if (num_steps_seen_ > 0 && reading > 0.5 * draft) return;
  double step = num_readings_ > 0 ? std::max(draft - reading, 0.0) / round.num_steps
                                  : draft / (round.num_steps + kGuessedReading * round.num_unread);
  if (step <= 0.0)
    return;  // a cost of nothing would be believed forever: all later ones are limited
  if (step_.is_measured(round.num_draft_sequences)) {
    step = std::min(step, kMostDisturbance * step_.At(round.num_draft_sequences));
  }
  step_.Add(round.num_draft_sequences, step, kStepWeight);
  ++num_steps_seen_;
}

void RoundCosts::ObservePass(int num_rows, double seconds) {
  if (level_ == 0.0) level_ = seconds / pass_.At(num_rows);
  const int last = std::exchange(last_num_rows_, num_rows);
  if (pass_.num_samples(num_rows) < 2) return pass_.Add(num_rows, seconds / level_, 1.0);
  const bool is_change = last != 0 && num_rows != last;
  const bool is_new = is_change && std::min(pass_.num_comparisons(num_rows),
                                            pass_.num_comparisons(last)) < kNewComparisons;
  const double most = is_new ? kMostSurpriseOfNew : kMostSurprise;
  const double surprise =
      std::clamp(std::log(seconds / (level_ * pass_.At(num_rows))), -most, most);
  if (!is_new) level_ *= std::exp((is_change ? kLevelWeightAtChange : kLevelWeight) * surprise);
  if (is_change) pass_.Compare(last, num_rows, surprise, kRelationWeight);
}

void RoundCosts::Serialize(StateArchive* archive) {
  pass_.Serialize(archive);
  step_.Serialize(archive);
  archive->Pass(0.0, kLargestReading, &reading_);
  archive->Pass(0, kManySeen, &num_steps_seen_);
  archive->Pass(0, kManySeen, &num_readings_);
}

void RoundCosts::ObserveReading(int num_tokens, absl::Duration time) {
  if (level_ == 0.0 || !CanBeElapsed(time)) return;
  const double per_token = absl::ToDoubleSeconds(time) / level_ / num_tokens;
  ++num_readings_;
  reading_ = num_readings_ == 1 ? per_token : reading_ + kStepWeight * (per_token - reading_);
}

}  // namespace tandem
