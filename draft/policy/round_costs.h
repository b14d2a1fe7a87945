#ifndef TANDEM_DRAFT_POLICY_ROUND_COSTS_H_
#define TANDEM_DRAFT_POLICY_ROUND_COSTS_H_

#include <algorithm>
#include <array>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// Learns the cost of a pass by the size of its batch, from passes as they happen, in any unit. True
// costs never fall as the size grows; where measured costs do, their weighted mean is used.
class CostCurve {
 public:
  // What sizes below all measured ones are assumed to cost: as much, or less by the slope.
  enum class Below { kFlat, kSloped };
  // Where nothing was measured, size 1 is assumed to cost `first`, and each further row `slope`
  // times that.
  explicit CostCurve(double slope, double first = 1.0, Below below = Below::kFlat) : below_(below) {
    Expect(slope, first);
  }
  void Expect(double slope, double first) {
    slope_ = slope;
    first_ = first;
    Fit();
  }
  double slope() const { return slope_; }
  double first() const { return first_; }

  // Records a pass of `size` >= 1 that cost `cost` > 0. The lesser of the first two counts.
  // Later ones are averaged, and each has at least the weight `weight`.
  void Add(int size, double cost, double weight);
  // Records that a pass of `size` right after one of `last` took exp(surprise) times the expected
  // time. Moves the two sizes apart, by at least the share `min_weight` of the surprise. The fewer
  // comparisons a size has, the more each new one moves it.
  // REQUIRES: both sizes were measured.
  void Compare(int last, int size, double surprise, double min_weight);
  // Returns the cost of `size` >= 1: as measured, interpolated linearly between measured sizes, and
  // extrapolated: to smaller ones as `below` says, and to larger ones with `slope` or the measured
  // slope, whichever is steeper.
  double At(int size) const;
  int num_samples(int size) const { return knots_[NearestKnot(size)].num_samples; }
  int num_comparisons(int size) const { return knots_[NearestKnot(size)].num_comparisons; }
  bool is_measured(int size) const { return num_samples(size) > 0; }
  bool is_empty() const;  // nothing was measured
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
  static int FirstKnotFrom(int size);  // the last knot if all are smaller
  static int NearestKnot(int size);
  void Fit();
  void FitMeasured();

  double slope_ = 0.0;
  double first_ = 1.0;
  Below below_;
  std::array<Knot, kNumKnots> knots_{};
};

// Learns the costs of drafting and verifying on this machine from the rounds themselves. The unit
// is the target's pass over one row. The current speed of the machine and the length of the texts
// change all costs together, and are followed fast. The relations between costs are followed
// slowly. Thread-compatible.
class RoundCosts {
 public:
  // A round in which every sequence decoded.
  struct Round {
    bool is_plain = true;         // no sequence drafted
    int num_rows = 0;             // rows of the target's pass
    int num_steps = 0;            // passes of the draft model
    int num_draft_sequences = 0;  // sequences in the first of them
    int num_unread = 0;           // tokens it had to read first, beyond one per sequence
    // Rows of the pass that drafts all tokens (DraftOption::in_one_pass): slots, and unread tokens
    // that are not among `num_unread` (RowsToRead). 0 if the draft model drafts in steps.
    int num_draft_rows = 0;
    absl::Duration draft_time = absl::ZeroDuration();
    absl::Duration verify_time = absl::ZeroDuration();  // everything but the draft
  };
  // Records a round. A round slows down the next ones, for example by tokens to send and by the
  // draft's weights in the caches (four sequences of the shipped pair, served: plain rounds after
  // drafting took 0.59, 0.57, and then 0.51 ms). So a round is measured only after
  // kUnmeasuredRounds of its own kind, plain or not, unless its costs were never measured.
  // Impossible times are ignored.
  void Observe(const Round& round);
  static constexpr int kUnmeasuredRounds = 2;
  // Records that the draft model read `num_tokens` of prompts in `time`.
  void ObserveReading(int num_tokens, absl::Duration time);

  // Until a step is measured, it is assumed to cost `step`: the bytes that the draft's pass reads
  // over those of the target's.
  void ExpectStep(double step) {
    step_.Expect(step_.slope(), step);
    one_pass_.Expect(one_pass_.slope(), step);
  }
  // Records that the target read `num_tokens` of prompts in `time`. Until passes over several rows
  // are measured, one more row is assumed to cost as much as a token of a prompt.
  void ObservePrompt(int num_tokens, absl::Duration time);
  static constexpr int kMinPromptTokens = 8;  // of a prompt that shows this cost

  // Whether passes take so long that the contents of the processor's caches hardly matter.
  bool has_long_passes() const;

  // Whether no pass was ever measured.
  bool knows_nothing() const { return pass_.is_empty(); }
  // Whether a pass over this many rows has been measured often enough, which is twice.
  bool knows_pass(int num_rows) const { return pass_.num_samples(num_rows) >= kFirstSamples; }
  bool knows_step() const { return num_steps_seen_ > 0; }
  // The cost of the target's pass over this many rows; 1 for one row.
  double Pass(int num_rows) const { return pass_.At(num_rows) / pass_.At(1); }
  // The cost of a step of the draft model for this many sequences.
  double Step(int num_sequences) const { return step_.At(num_sequences) / pass_.At(1); }
  // The cost of a pass of this many rows of a draft model that drafts in one pass; 0 for no rows.
  double OnePass(int num_rows) const {
    return num_rows == 0 ? 0.0 : one_pass_.At(num_rows) / pass_.At(1);
  }
  // The cost of `num_tokens` draft tokens for each of `num_sequences` sequences, which have read
  // everything but their last token.
  double Drafting(bool in_one_pass, int num_sequences, int num_tokens) const {
    return in_one_pass ? OnePass(num_sequences * num_tokens) : num_tokens * Step(num_sequences);
  }
  // How many of a sequence's unread tokens are rows of the pass that drafts, before the last one.
  // More are read by passes of their own, whose cost is Reading.
  static int RowsToRead(int num_unread) {
    constexpr int kMaxRowsToRead = 16;
    return num_unread <= kMaxRowsToRead ? std::max(num_unread - 1, 0) : 0;
  }
  // The cost of reading `num_tokens` with the draft model before its first step. Until it was
  // measured, a token is assumed to cost as much of a step as one more row does of a pass.
  double Reading(int num_tokens) const {
    const double per_token = num_readings_ > 0 ? reading_ : pass_.slope() * step_.At(1);
    return per_token * num_tokens / pass_.At(1);
  }
  // The cost of a draft of `num_rows` tokens beyond that of `num_accepted` plain tokens, in a round
  // of `num_sequences` sequences with a draft like it. `drafting`: the cost of all these drafts.
  double LossOf(int num_sequences, int num_rows, double drafting, int num_accepted) const {
    const int all = num_sequences * num_rows;
    const double plain = Pass(num_sequences);
    return (Pass(num_sequences + all) - plain + drafting - num_accepted * plain) / num_sequences;
  }
  // Saves or restores everything but the speed of the machine, which the first round measures
  // again.
  void Serialize(StateArchive* archive);
  // The time of the unit, a pass over one row.
  absl::Duration PlainPass() const { return absl::Seconds(level_ * pass_.At(1)); }

 private:
  void ObservePass(int num_rows, double seconds);
  void ObserveDraft(const Round& round);
  void ExpectRows();

  // Samples of a size before rounds of other kinds matter: the lesser of the first two counts.
  static constexpr int kFirstSamples = 2;
  double level_ = 0.0;     // seconds per unit of the curves
  int last_num_rows_ = 0;  // of the round before; 0 before the first
  bool last_was_plain_ = true;
  int num_alike_ = kUnmeasuredRounds;  // earlier rounds in a row of the last one's kind, clamped
  CostCurve pass_{0.1};
  CostCurve step_{0.1, 0.25};
  CostCurve one_pass_{0.1, 0.25, CostCurve::Below::kSloped};  // by rows; drafts begin with several
  double prompt_seconds_ = 0.0;  // per token, the least; 0 before the first prompt
  double reading_ = 0.0;         // per token
  int num_steps_seen_ = 0;
  int num_readings_ = 0;
};

// The maximum number of draft tokens that BestRoundGain considers.
inline constexpr int kMaxGainTokens = 8;

// Returns the expected tokens of a round divided by its cost, both relative to plain decoding, at
// the best number of draft tokens. For use before anything was measured. `step`: the cost of a pass
// of the draft over one row, in plain passes. `in_one_pass`: whether one such pass drafts all
// tokens. `survival(k)`: the chance that the first k tokens are kept, called for 1, 2, and so on.
inline double BestRoundGain(double step, bool in_one_pass,
                            absl::FunctionRef<double(int)> survival) {
  constexpr double kRow = 0.05;  // of a pass, for each row beyond the first
  double tokens = 1.0;
  double best = 1.0;
  for (int k = 1; k <= kMaxGainTokens; ++k) {
    tokens += survival(k);
    const double drafting = step * (in_one_pass ? 1.0 + kRow * (k - 1) : k);
    best = std::max(best, tokens / (1.0 + drafting + kRow * k));
  }
  return best;
}

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_ROUND_COSTS_H_
