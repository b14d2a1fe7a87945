#ifndef TANDEM_DRAFT_DRAFT_LENGTH_H_
#define TANDEM_DRAFT_DRAFT_LENGTH_H_

#include "absl/time/time.h"

namespace tandem {

// What a round costs on this machine, learned from the rounds themselves. Shared by all sessions of
// an engine. Thread-compatible.
class RoundCosts {
 public:
  // One pass of the target over `num_sequences` sequences with `num_draft_tokens` draft rows in
  // all, after a draft phase of `num_steps` steps.
  void Observe(int num_sequences, int num_draft_tokens, int num_steps, absl::Duration draft_time,
               absl::Duration verify_time);

  bool known() const { return plain_.num_samples > 0 && step_.num_samples > 0; }
  // Whether it is time to see again what a round without a draft costs.
  bool wants_plain_round() const;
  // c_eff = c + s: one more draft token's share of the time of one plain step
  // (docs/draft_length.md).
  double RelativeCost() const;

 private:
  static constexpr int kFirstSamples = 3;
  struct Estimate {
    double value = 0.0;
    int num_samples = 0;
    void Add(double sample);
  };

  Estimate plain_;  // seconds of a target pass without draft rows
  Estimate row_;    // seconds of one more row in it
  Estimate step_;   // seconds of a draft step
  int rounds_since_plain_ = 0;
};

// How many tokens to propose next: a fixed number, or for one sequence the k that maximises
// E(k) / (1 + k c_eff) with E(k) = 1 + alpha + ... + alpha^k the expected tokens of a round and
// alpha the acceptance of this sequence so far. Thread-compatible.
class DraftLength {
 public:
  // `fixed` tokens, or as measured with kAuto.
  static constexpr int kAuto = -1;
  explicit DraftLength(int fixed) : fixed_(fixed) {}

  int Next(const RoundCosts& costs);
  // A round tested `num_tested` draft tokens one after the other and kept `num_accepted`.
  void Observe(int num_tested, int num_accepted);

 private:
  int fixed_;
  double tested_ = 0.0;  // with exponential forgetting
  double accepted_ = 0.0;
  int rounds_without_draft_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_DRAFT_LENGTH_H_
