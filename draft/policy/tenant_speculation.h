#ifndef TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_
#define TANDEM_DRAFT_POLICY_TENANT_SPECULATION_H_

#include <array>

#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/confidence_curve.h"
#include "draft/policy/draft_temperature.h"
#include "draft/policy/speedup_monitor.h"
#include "draft/policy/state_archive.h"

namespace tandem {

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
