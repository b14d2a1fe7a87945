#ifndef TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_
#define TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "draft/policy/draft_plan.h"
#include "draft/policy/draft_temperature.h"
#include "draft/policy/speedup_monitor.h"

namespace tandem {

// Decides round by round who drafts how much, and never lets speculation cost more than it brings:
// plans with what was measured so far, stops when no gain is expected, and tries again now and then
// within a bounded share of the time (docs/draft_length.md). One per engine. Thread-compatible.
class SpeculationPolicy {
 public:
  // The choices for the next round's decoding sequences; `other_rows` of the pass are not theirs.
  std::vector<DraftChoice> Plan(absl::Span<const DraftCandidate> candidates, int other_rows);

  // Whether a draft model should read prompts along: where it was of use lately.
  bool reads_prompts() const { return rounds_without_model_ < kRoundsOfPatience; }
  // Whether the round last planned only tries what is not believed to pay.
  bool is_probing() const { return is_probing_; }

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
  // Whether the next round's times tell what its rows cost. Those of the first rounds behind a long
  // reading do not: processor caches hold other things (three rows behind a prompt of 190 tokens
  // took 1041, 696, 503, and then 430 us). Where prompts never cease, they have to do.
  bool measures() const {
    return rounds_since_reading_ >= kRoundsToWarm || rounds_unmeasured_ >= kRoundsOfPatience;
  }
  // How often tokens of draft models are kept for sequences of this temperature.
  ConfidenceCurve& ConfidenceAt(float temperature) {
    return confidence_[TemperatureBucket(temperature)];
  }
  struct RoundEnd {
    bool has_read_much = false;
    int num_tokens = 0;  // emitted
    Instant start = Instant();
    Instant end = Instant();
  };
  // After every round: what it showed may be used from the next one on.
  void EndRound(const RoundEnd& round) {
    const bool has_read_much = round.has_read_much;
    if (check_ != nullptr) check_->Observe(round.num_tokens, TimeOf(round));
    last_end_ = round.end;
    ++num_rounds_;
    rounds_unmeasured_ = measures() && !has_read_much ? 0 : rounds_unmeasured_ + 1;
    rounds_since_reading_ = has_read_much ? 0 : rounds_since_reading_ + 1;
    for (DraftTemperature& draft_temperature : draft_temperature_) draft_temperature.Update();
  }
  // What outlives the process: costs, acceptance, and whether speculation paid.
  void Serialize(StateArchive* archive);
  // Rounds since the start of the process.
  int64_t num_rounds() const { return num_rounds_; }
  RoundCosts& costs() { return costs_; }
  const RoundCosts& costs() const { return costs_; }

 private:
  static constexpr int kNumTemperatureBuckets = 4;
  static constexpr int kNumBatches = 8;
  static constexpr int kRoundsOfPatience = 64;
  static constexpr int kRoundsToWarm = 4;
  static int TemperatureBucket(float temperature);

  // With the time since the round before, unless there was nothing to do for long.
  absl::Duration TimeOf(const RoundEnd& round) const {
    const absl::Duration own = round.end - round.start;
    const absl::Duration between = round.start - last_end_;
    return absl::ZeroDuration() < between && between < own ? own + between : own;
  }
  bool Calibrates(absl::Span<const DraftCandidate> candidates, int other_rows,
                  std::vector<DraftChoice>* choices);
  static void LetStop(const DraftPlan& plan, absl::Span<const DraftCandidate> candidates,
                      std::vector<DraftChoice>* choices);
  void Explore(absl::Span<const DraftCandidate> candidates, std::vector<DraftChoice>* choices);
  bool Probe(absl::Span<const DraftCandidate> candidates, int num_rows,
             std::vector<DraftChoice>* choices);

  RoundCosts costs_;
  std::array<SpeedupMonitor, kNumBatches> checks_;  // of 1, 2, up to 4, up to 8 sequences and so on
  SpeedupMonitor* check_ = nullptr;                 // that was asked for the round
  std::array<AcceptanceEstimate, kNumTemperatureBuckets> general_;
  std::array<DraftTemperature, kNumTemperatureBuckets> draft_temperature_;
  std::array<ConfidenceCurve, kNumTemperatureBuckets> confidence_;
  Instant last_end_;
  int64_t num_rounds_ = 0;
  int rounds_since_reading_ = 0;
  int rounds_unmeasured_ = 0;
  bool is_on_ = true;
  bool is_probing_ = false;
  int rounds_calibrated_ = 0;
  int rounds_since_exploration_ = 0;
  int num_explorations_ = 0;
  int rounds_without_model_ = 0;
  int rounds_probed_ = 0;
  double probe_budget_ = 0.0;  // in plain passes
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_
