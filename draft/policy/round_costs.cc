#include "draft/policy/round_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/instant.h"

namespace tandem {
namespace {

// Every size up to kDense has a knot. Beyond it there are kPerDoubling knots per doubling.
constexpr int kDense = 16;
constexpr int kPerDoubling = 4;
// The maximum weight of a size, in samples, relative to other sizes.
constexpr int kMaxWeight = 64;
// The range of costs that a file may hold.
constexpr double kSmallestCost = 1e-9;
constexpr double kLargestCost = 1e9;

// The speed of the machine changes within some ten rounds, and so does the cost of a step. Rounds
// of one size say nothing about relations. These show where the size changes, compared with the
// round before.
constexpr double kLevelWeight = 0.25;
constexpr double kLevelWeightAtChange = 0.1;
constexpr double kStepWeight = 0.1;
constexpr double kRelationWeight = 0.1;
// On a shared machine disturbances make times much longer. So a measurement is clamped to this
// distance from the expected time, as a logarithm. The bound is wider for relations that were
// seldom compared.
constexpr double kMaxSurprise = 0.25;
constexpr double kMaxSurpriseWhenNew = 1.0;
constexpr int kNewComparisons = 8;
constexpr double kMaxDisturbance = 1.5;
// A pass of this time reads its weights from memory, and so does a prompt with this time per token.
// Weights of 100 MB may stay in a last-level cache (SmolLM2: plain passes of 3.4 ms, and 5.8 ms
// from memory).
constexpr absl::Duration kLongPass = absl::Milliseconds(15);
constexpr double kLongPromptSeconds = 3e-3;
// The range of the cost of one more row that a prompt may suggest.
constexpr double kMinRow = 0.01;
constexpr double kMaxRow = 1.0;
// Bounds of the numbers in a file.
constexpr double kLargestReading = 1e9;
constexpr int kManySeen = std::numeric_limits<int>::max() - 1;

}  // namespace

int CostCurve::SizeAt(int knot) {
  if (knot < kDense) return knot + 1;
  const int doublings = (knot - kDense) / kPerDoubling;
  const int part = (knot - kDense) % kPerDoubling + 1;
  return (kDense << doublings) + part * ((kDense << doublings) / kPerDoubling);
}

int CostCurve::FirstKnotFrom(int size) {
  TANDEM_CHECK(size >= 1);
  if (size <= kDense) return size - 1;
  const int doublings = std::bit_width(static_cast<unsigned>(size - 1) / kDense) - 1;
  const int step = (kDense << doublings) / kPerDoubling;
  const int part = (size - (kDense << doublings) + step - 1) / step;
  return std::min(kDense + doublings * kPerDoubling + part - 1, kNumKnots - 1);
}

int CostCurve::NearestKnot(int size) {
  const int right = FirstKnotFrom(size);
  if (right == 0) return right;
  return size - SizeAt(right - 1) <= std::abs(SizeAt(right) - size) ? right - 1 : right;
}

bool CostCurve::is_empty() const {
  return std::all_of(knots_.begin(), knots_.end(),
                     [](const Knot& knot) { return knot.num_samples == 0; });
}

void CostCurve::Add(int size, double cost, double weight) {
  const int nearest = NearestKnot(size);
  Knot& knot = knots_[nearest];
  cost *= At(SizeAt(nearest)) / At(size);  // the equivalent cost at the knot
  ++knot.num_samples;
  if (knot.num_samples == 1) {
    knot.measured = cost;
  } else if (knot.num_samples == 2) {
    knot.measured = std::min(knot.measured, cost);
  } else {
    knot.measured += std::max(weight, 1.0 / knot.num_samples) * (cost - knot.measured);
  }
  Fit();
}

// Changes in both directions move a size by the same share, so an overhead of every change cancels
// out.
void CostCurve::Compare(int last, int size, double surprise, double min_weight) {
  Knot& a = knots_[NearestKnot(last)];
  Knot& b = knots_[NearestKnot(size)];
  if (&a == &b) return;
  const double weight =
      std::max(min_weight, 1.0 / (2 + std::min(a.num_comparisons, b.num_comparisons)));
  const double share = (a.num_comparisons + 1.0) / (a.num_comparisons + b.num_comparisons + 2.0);
  b.measured *= std::exp(weight * share * surprise);
  a.measured *= std::exp(-weight * (1.0 - share) * surprise);
  for (Knot* knot : {&a, &b}) {
    knot->num_comparisons = std::min(knot->num_comparisons + 1, kMaxWeight);
  }
  Fit();
}

// Fits the nondecreasing sequence that is closest to the measured knots, by least squares weighted
// with the observations of each. Pools adjacent violators (Ayer et al. 1955).
void CostCurve::FitMeasured() {
  struct Pool {
    double weight;
    double mean;
    int first_knot;
  };
  std::array<Pool, kNumKnots> pools;
  int count = 0;
  for (int i = 0; i < kNumKnots; ++i) {
    if (knots_[i].num_samples == 0) continue;
    pools[count++] = {static_cast<double>(std::min(knots_[i].num_samples, kMaxWeight)),
                      knots_[i].measured, i};
    while (count > 1 && pools[count - 2].mean > pools[count - 1].mean) {
      const Pool& b = pools[count - 1];
      Pool& a = pools[count - 2];
      a.mean = (a.weight * a.mean + b.weight * b.mean) / (a.weight + b.weight);
      a.weight += b.weight;
      --count;
    }
  }
  for (int p = 0; p < count; ++p) {
    const int end = p + 1 < count ? pools[p + 1].first_knot : kNumKnots;
    for (int i = pools[p].first_knot; i < end; ++i) knots_[i].fitted = pools[p].mean;
  }
}

void CostCurve::Fit() {
  int first = -1;
  int last = -1;
  for (int i = 0; i < kNumKnots; ++i) {
    if (knots_[i].num_samples == 0) continue;
    if (first < 0) first = i;
    last = i;
  }
  FitMeasured();
  if (first < 0) {
    for (int i = 0; i < kNumKnots; ++i) {
      knots_[i].fitted = first_ * (1.0 + slope_ * (SizeAt(i) - 1));
    }
    return;
  }
  const double slope_below = below_ == Below::kSloped ? slope_ : 0.0;
  for (int i = 0; i < first; ++i) {
    knots_[i].fitted = knots_[first].fitted * (1.0 + slope_below * (SizeAt(i) - 1)) /
                       (1.0 + slope_below * (SizeAt(first) - 1));
  }
  for (int left = first, i = first + 1; i <= last; ++i) {
    if (knots_[i].num_samples == 0) continue;
    const double step = (knots_[i].fitted - knots_[left].fitted) / (SizeAt(i) - SizeAt(left));
    for (int j = left + 1; j < i; ++j) {
      knots_[j].fitted = knots_[left].fitted + step * (SizeAt(j) - SizeAt(left));
    }
    left = i;
  }
  double slope = slope_ * knots_[first].fitted;
  if (last > first) {
    slope = std::max(slope,
                     (knots_[last].fitted - knots_[first].fitted) / (SizeAt(last) - SizeAt(first)));
  }
  for (int i = last + 1; i < kNumKnots; ++i) {
    knots_[i].fitted = knots_[last].fitted + slope * (SizeAt(i) - SizeAt(last));
  }
}

void CostCurve::Serialize(StateArchive* archive) {
  for (Knot& knot : knots_) {
    archive->Pass(0, std::numeric_limits<int>::max() - 1, &knot.num_samples);
    archive->Pass(0, kMaxWeight, &knot.num_comparisons);
    if (knot.num_samples > 0) archive->Pass(kSmallestCost, kLargestCost, &knot.measured);
  }
  Fit();
}

double CostCurve::At(int size) const {
  const int right = FirstKnotFrom(size);
  if (right == 0 || SizeAt(right) == size) return knots_[right].fitted;
  const Knot& a = knots_[right - 1];
  const Knot& b = knots_[right];
  const double slope = (b.fitted - a.fitted) / (SizeAt(right) - SizeAt(right - 1));
  return a.fitted + slope * (size - SizeAt(right - 1));
}

void RoundCosts::Observe(const Round& round) {
  const bool is_alike = std::exchange(last_was_plain_, round.is_plain) == round.is_plain;
  num_alike_ = is_alike ? std::min(num_alike_ + 1, kUnmeasuredRounds) : 0;
  const bool is_new = !knows_pass(round.num_rows) || (round.num_steps > 0 && !knows_step());
  if (num_alike_ < kUnmeasuredRounds && !is_new) return;
  if (!CanBeElapsed(round.verify_time)) return;
  ObservePass(round.num_rows, absl::ToDoubleSeconds(round.verify_time));
  if (round.num_steps > 0 && CanBeElapsed(round.draft_time)) ObserveDraft(round);
}

void RoundCosts::ObserveDraft(const Round& round) {
  const double draft = absl::ToDoubleSeconds(round.draft_time) / level_;
  const double reading = num_readings_ > 0 ? reading_ * round.num_unread : 0.0;
  // A draft that mostly read says little about its steps.
  if (num_steps_seen_ > 0 && reading > 0.5 * draft) return;
  const bool in_one_pass = round.num_draft_rows > 0;
  CostCurve& curve = in_one_pass ? one_pass_ : step_;
  const int size = in_one_pass ? round.num_draft_rows : round.num_draft_sequences;
  const int num_read = num_readings_ > 0 ? 0 : round.num_unread;  // at an unknown cost
  double cost = std::max(draft - reading, 0.0);
  if (in_one_pass) {
    cost *= curve.At(size) / curve.At(size + num_read);
  } else {
    cost /= round.num_steps + pass_.slope() * num_read;
  }
  if (cost <= 0.0) return;  // it would stay 0, because later costs are limited relative to it
  if (curve.is_measured(size)) cost = std::min(cost, kMaxDisturbance * curve.At(size));
  curve.Add(size, cost, kStepWeight);
  ++num_steps_seen_;
}

void RoundCosts::ObservePass(int num_rows, double seconds) {
  if (level_ == 0.0) {
    level_ = seconds / pass_.At(num_rows);
    ExpectRows();
  }
  const int last = std::exchange(last_num_rows_, num_rows);
  if (!knows_pass(num_rows)) {
    pass_.Add(num_rows, seconds / level_, 1.0);
    return ExpectRows();
  }
  const bool is_change = last != 0 && num_rows != last;
  const bool is_new = is_change && std::min(pass_.num_comparisons(num_rows),
                                            pass_.num_comparisons(last)) < kNewComparisons;
  const double most = is_new ? kMaxSurpriseWhenNew : kMaxSurprise;
  const double surprise =
      std::clamp(std::log(seconds / (level_ * pass_.At(num_rows))), -most, most);
  if (!is_new) level_ *= std::exp((is_change ? kLevelWeightAtChange : kLevelWeight) * surprise);
  if (is_change) pass_.Compare(last, num_rows, surprise, kRelationWeight);
}

void RoundCosts::ObservePrompt(int num_tokens, absl::Duration time) {
  if (num_tokens < kMinPromptTokens || !CanBeElapsed(time)) return;
  const double per_token = absl::ToDoubleSeconds(time) / num_tokens;
  prompt_seconds_ = prompt_seconds_ == 0.0 ? per_token : std::min(prompt_seconds_, per_token);
  ExpectRows();
}

void RoundCosts::ExpectRows() {
  if (level_ == 0.0 || prompt_seconds_ == 0.0) return;
  const double plain = level_ * pass_.At(1);
  pass_.Expect(std::clamp(prompt_seconds_ / plain, kMinRow, kMaxRow), /*first=*/1.0);
  one_pass_.Expect(pass_.slope(), one_pass_.first());
}

bool RoundCosts::has_long_passes() const {
  return PlainPass() >= kLongPass || prompt_seconds_ >= kLongPromptSeconds;
}

void RoundCosts::Serialize(StateArchive* archive) {
  double row = pass_.slope();
  archive->Pass(kMinRow, kMaxRow, &row);
  pass_.Expect(row, /*first=*/1.0);
  pass_.Serialize(archive);
  step_.Serialize(archive);
  one_pass_.Serialize(archive);
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
