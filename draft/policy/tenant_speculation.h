#ifndef TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_
#define TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_

#include <array>

#include "absl/time/time.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/draft_temperature.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// Decides whether speculation pays, by measured speed rather than a prediction. While speculation
// is on, it is turned off now and then for a stretch of rounds, and vice versa. The tokens per time
// of such an exception are compared with those of the stretches around it, so everything counts
// that slows rounds down, in them and between them. Thread-compatible.
class SpeedupMonitor {
 public:
  // Returns whether the next round may draft. Call it when drafting is expected to be faster by the
  // factor `predicted_gain`, and call Observe after the round.
  bool Allows(double predicted_gain);
  // Observes the tokens and the time of the round allowed or refused last, including the time since
  // the round before. Ignores impossible times.
  void Observe(int num_tokens, absl::Duration time);
  // The mean measured gain of speculation, as a logarithm.
  double mean_gain() const { return mean_; }
  // Saves or restores the verdict so far, without the current stretch.
  void Serialize(StateArchive* archive);

  // Rounds in a stretch; the first two of each do not count.
  static constexpr int kStretch = 16;
  // If the first predicted gain is at least kClearGain, checks start after kRoundsBeforeChecks
  // rounds.
  static constexpr double kClearGain = 1.25;
  static constexpr int kRoundsBeforeChecks = 64;
  // While speculation is off, it starts again when the predicted gain, averaged over some thirty
  // rounds, has grown by this factor.
  static constexpr double kMuchMore = 1.25;

 private:
  struct Sum {
    double tokens = 0.0;
    double seconds = 0.0;
  };

  void EndStretch();
  void Compare(const Sum& after);
  int StretchesUntilException();

  bool pays_ = true;               // the usual choice, apart from exceptions
  int rounds_before_checks_ = -1;  // rounds before checks start; negative before the first round
  double predicted_ = 1.0;         // mean predicted gain
  double refused_ = 1.0;           // `predicted_` when the verdict last changed
  double mean_ = 0.0;
  int num_compared_ = 0;  // exceptions in `mean_`
  int rest_ = 0;          // stretches until the next exception while speculation is off

  int usual_left_ = 1;          // stretches before the next exception
  int num_rounds_ = 0;          // rounds of the current stretch so far
  bool has_exception_ = false;  // whether the previous stretch was an exception
  Sum current_;
  Sum before_;
  Sum exception_;
};

// The statistics that speculation learns from the texts of one tenant: how many draft tokens are
// accepted, and whether drafts paid. Each tenant has its own, so that the speed of its requests
// reveals nothing about other tenants' texts (docs/drafting/draft_length.md). Thread-compatible.
class TenantSpeculation {
 public:
  static constexpr int kMaxRoundsWithoutModel = 64;
  // A process may spend this much on probes before it has saved anything: 2 % of 72 plain passes.
  static constexpr double kFirstProbeBudget = 1.4;

  // The acceptance of all sequences of similar temperature.
  const AcceptanceEstimate& AcceptanceAt(float temperature) const {
    return general_[TemperatureBucket(temperature)];
  }
  void ObserveAcceptance(float temperature, const DraftOption& kind, int num_verified,
                         int num_accepted) {
    general_[TemperatureBucket(temperature)].Observe(kind, num_verified, num_accepted);
  }
  // How sharply drafts are drawn for sequences of similar temperature.
  DraftTemperature& DraftTemperatureAt(float temperature) {
    return draft_temperature_[TemperatureBucket(temperature)];
  }
  // How often tokens of draft models are kept for sequences of similar temperature.
  ConfidenceCurve& ConfidenceAt(float temperature) {
    return confidence_[TemperatureBucket(temperature)];
  }

  // Call after each round. Its observations count from the next round on.
  void EndRound() {
    for (DraftTemperature& draft_temperature : draft_temperature_) draft_temperature.Update();
  }
  void Serialize(StateArchive* archive);

 private:
  friend class SpeculationPolicy;  // uses and updates the decision state
  static constexpr int kNumTemperatureBuckets = 4;
  static constexpr int kNumBatches = 8;
  static int TemperatureBucket(float temperature);

  std::array<SpeedupMonitor, kNumBatches> checks_;  // for 1, 2, up to 4, up to 8 sequences, ...
  std::array<AcceptanceEstimate, kNumTemperatureBuckets> general_;
  std::array<DraftTemperature, kNumTemperatureBuckets> draft_temperature_;
  std::array<ConfidenceCurve, kNumTemperatureBuckets> confidence_;
  bool is_on_ = true;
  int rounds_since_exploration_ = 0;
  int num_explorations_ = 0;
  int rounds_without_model_ = kMaxRoundsWithoutModel;
  double model_gain_ = 1.0;  // predicted, in rounds in which the model drafts; a mean
  int rounds_probed_ = 0;
  double probe_budget_ = kFirstProbeBudget;  // in plain passes
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_
