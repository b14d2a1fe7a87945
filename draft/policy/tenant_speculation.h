#ifndef TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_
#define TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_

#include <array>

#include "absl/time/time.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/draft_temperature.h"
#include "draft/policy/state_archive.h"

namespace tandem {

// Decides whether speculation pays, by measured speed and not by a prediction. While speculation is
// on it is turned off now and then for a stretch of rounds, and while it is off it is turned on for
// one. The tokens per time of such a stretch are compared with those of the stretches around it, so
// everything counts that slows rounds down, in them and between them. Thread-compatible.
class SpeedupMonitor {
 public:
  // Whether the next round may draft. Asked where drafting is believed to be faster by the factor
  // `predicted_gain`. Follow it by Observe.
  bool Allows(double predicted_gain);
  // Observes the tokens and the time of the round allowed or refused last, including the time since
  // the round before. Ignores impossible times.
  void Observe(int num_tokens, absl::Duration time);
  // The mean gain of speculation that was seen, as a logarithm.
  double mean_gain() const { return mean_; }
  // The verdict so far, without the stretch under way.
  void Serialize(StateArchive* archive);

  // Rounds in a stretch; the first two of each do not count.
  static constexpr int kStretch = 16;
  // A clear gain is believed for so many rounds before it is checked.
  static constexpr double kClearGain = 1.25;
  static constexpr int kRoundsOfBelief = 64;
  // Where speculation rests, it begins anew once so much more is predicted, over some thirty
  // rounds, than when that began.
  static constexpr double kMuchMore = 1.25;

 private:
  struct Sum {
    double tokens = 0.0;
    double seconds = 0.0;
  };

  void EndStretch();
  void Compare(const Sum& after);
  int StretchesUntilException();

  bool pays_ = true;        // the usual choice, apart from trial stretches
  int belief_left_ = -1;    // rounds; negative before the first
  double predicted_ = 1.0;  // in the mean
  double refused_ = 1.0;    // predicted when speculation was last found not to pay
  double mean_ = 0.0;
  int num_compared_ = 0;  // exceptions in `mean_`
  int rest_ = 0;          // stretches until the next exception, where speculation rests

  int usual_left_ = 1;          // stretches before the next exception
  int num_rounds_ = 0;          // of the stretch under way
  bool has_exception_ = false;  // the stretch just before
  Sum current_;
  Sum before_;
  Sum exception_;
};

// What speculation learns from texts: how much of its drafts one tenant accepts, and whether they
// paid. Each tenant has its own, so that none can tell from its own speed what others wrote
// (docs/draft_length.md). Thread-compatible.
class TenantSpeculation {
 public:
  static constexpr int kRoundsOfPatience = 64;

  // What sequences of this temperature accept in general.
  const AcceptanceEstimate& AcceptanceAt(float temperature) const {
    return general_[TemperatureBucket(temperature)];
  }
  void ObserveAcceptance(float temperature, const DraftOption& kind, int num_verified,
                         int num_accepted) {
    general_[TemperatureBucket(temperature)].Observe(kind, num_verified, num_accepted);
  }
  // How sharply drafts are drawn for sequences of this temperature.
  DraftTemperature& DraftTemperatureAt(float temperature) {
    return draft_temperature_[TemperatureBucket(temperature)];
  }
  // How often tokens of draft models are kept for sequences of this temperature.
  ConfidenceCurve& ConfidenceAt(float temperature) {
    return confidence_[TemperatureBucket(temperature)];
  }
  // Whether a draft model should read prompts along: where it was of use lately.
  bool reads_prompts() const { return rounds_without_model_ < kRoundsOfPatience; }

  // After each round: its observations count from the next one on.
  void EndRound() {
    for (DraftTemperature& draft_temperature : draft_temperature_) draft_temperature.Update();
  }
  void Serialize(StateArchive* archive);

 private:
  friend class SpeculationPolicy;  // decides by it
  static constexpr int kNumTemperatureBuckets = 4;
  static constexpr int kNumBatches = 8;
  static int TemperatureBucket(float temperature);

  std::array<SpeedupMonitor, kNumBatches> checks_;  // of 1, 2, up to 4, up to 8 sequences and so on
  std::array<AcceptanceEstimate, kNumTemperatureBuckets> general_;
  std::array<DraftTemperature, kNumTemperatureBuckets> draft_temperature_;
  std::array<ConfidenceCurve, kNumTemperatureBuckets> confidence_;
  bool is_on_ = true;
  int rounds_since_exploration_ = 0;
  int num_explorations_ = 0;
  int rounds_without_model_ = 0;
  int rounds_probed_ = 0;
  double probe_budget_ = 0.0;  // in plain passes
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_
