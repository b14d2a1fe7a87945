#ifndef TANDEM_DRAFT_POLICY_ROUND_COSTS_H_
#define TANDEM_DRAFT_POLICY_ROUND_COSTS_H_

#include <algorithm>
#include <array>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// The cost of a pass by the size of its batch, learned from passes as they happen, in any unit.
// True costs never fall as the size grows; where measured ones do, their weighted mean counts.
class CostCurve {
 public:
  // `slope`: by how much one more row is believed to raise the cost where nothing was measured.
  explicit CostCurve(double slope) : slope_(slope) { Fit(); }

  // A pass of `size` >= 1 that cost `cost` > 0. The first two count for the lesser, later ones move
  // the estimate towards the mean, and in the end by the share `weight`.
  void Add(int size, double cost, double weight);
  // A pass of `size` right after one of `last` took exp(surprise) times what both were believed to:
  // moves them apart, by the share `min_weight` in the end. The fewer comparisons a size has, the
  // more each new one moves it. Both were measured.
  void Compare(int last, int size, double surprise, double min_weight);
  // The cost of `size` >= 1: as measured, between measured sizes on a straight line, beyond them
  // along `slope` or their own, whichever is steeper.
  double At(int size) const;
  int num_samples(int size) const { return knots_[NearestKnot(size)].num_samples; }
  int num_comparisons(int size) const { return knots_[NearestKnot(size)].num_comparisons; }
  bool is_measured(int size) const { return num_samples(size) > 0; }
  void Serialize(StateArchive* archive);

 private:
  static constexpr int kNumKnots = 32;
  struct Knot {
    double measured = 0.0;
    int num_samples = 0;
    int num_comparisons = 0;
    double fitted = 0.0;
  };
  static int SizeAt(int knot);
  static int FirstKnotFrom(int size);  // the last one if all are smaller
  static int NearestKnot(int size);
  void Fit();
  void FitMeasured();

  double slope_;
  std::array<Knot, kNumKnots> knots_{};
};

// What drafting and verifying cost on this machine, learned from the rounds themselves. The unit is
// the target's pass over one row: how fast the machine is at the moment, and how long the texts
// are, changes all costs together and is followed fast; what they are relative to each other is
// followed slowly. Thread-compatible.
class RoundCosts {
 public:
  // A round in which every sequence decoded.
  struct Round {
    bool is_plain = true;         // nobody drafted
    int num_rows = 0;             // of the target's pass
    int num_steps = 0;            // passes of the draft model
    int num_draft_sequences = 0;  // in the first of them
    int num_unread = 0;           // tokens it had to read first, beyond one of each
    absl::Duration draft_time = absl::ZeroDuration();
    absl::Duration verify_time = absl::ZeroDuration();  // all but the draft
  };
  // What a round leaves behind, such as tokens to be sent and the draft's weights in the caches,
  // slows the next ones down (four sequences of the shipped pair, served: plain rounds behind
  // drafting took 0.59, 0.57, and then 0.51 ms). So rounds are measured that follow
  // kUnmeasuredRounds of their own kind, plain or not. Times that cannot be are no measurements.
  void Observe(const Round& round);
  static constexpr int kUnmeasuredRounds = 2;
  // The draft model read `num_tokens` of prompts in `time`.
  void ObserveReading(int num_tokens, absl::Duration time);

  // Whether a pass over this many rows was ever measured.
  bool knows_pass(int num_rows) const { return pass_.is_measured(num_rows); }
  bool knows_step() const { return num_steps_seen_ > 0; }
  // The target's pass over this many rows; 1 for one.
  double Pass(int num_rows) const { return pass_.At(num_rows) / pass_.At(1); }
  // A step of the draft model for this many sequences.
  double Step(int num_sequences) const { return step_.At(num_sequences) / pass_.At(1); }
  // The draft model's reading of so many tokens before its first step; a guess until it was seen.
  double Reading(int num_tokens) const {
    const double per_token = num_readings_ > 0 ? reading_ : kGuessedReading * step_.At(1);
    return per_token * num_tokens / pass_.At(1);
  }
  // All but how fast the machine is, which the first round tells anew.
  void Serialize(StateArchive* archive);
  // The unit itself.
  absl::Duration PlainPass() const { return absl::Seconds(level_ * pass_.At(1)); }

 private:
  void ObservePass(int num_rows, double seconds);

  static constexpr double kGuessedReading = 0.1;  // of a step
  double level_ = 0.0;                            // seconds per unit of the curves
  int last_num_rows_ = 0;                         // of the round before; 0 before the first
  bool last_was_plain_ = true;
  int num_alike_ = kUnmeasuredRounds;  // rounds of the last one's kind, as far as it matters
  CostCurve pass_{0.1};
  CostCurve step_{0.1};
  double reading_ = 0.0;  // per token
  int num_steps_seen_ = 0;
  int num_readings_ = 0;
};

// The most draft tokens that BestRoundGain considers.
inline constexpr int kMaxGainTokens = 8;

// Expected tokens of a round over its cost, both relative to plain decoding, at the best number of
// draft tokens, before anything was measured. `step`: of the draft model, in plain passes.
// `survival(k)`: the chance that the first k tokens are kept, asked for 1, 2, and so on.
inline double BestRoundGain(double step, absl::FunctionRef<double(int)> survival) {
  constexpr double kRowOfVerification = 0.05;  // in plain passes, for each row beyond the first
  double tokens = 1.0;
  double best = 1.0;
  for (int k = 1; k <= kMaxGainTokens; ++k) {
    tokens += survival(k);
    best = std::max(best, tokens / (1.0 + k * (step + kRowOfVerification)));
  }
  return best;
}

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_ROUND_COSTS_H_
