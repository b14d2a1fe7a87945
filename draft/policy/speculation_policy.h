#ifndef TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_
#define TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "draft/policy/draft_plan.h"
#include "draft/policy/tenant_speculation.h"

namespace tandem {

// Decides in each round how many tokens each sequence drafts, so that speculation never costs more
// than it gains. Plans with the measurements so far, stops drafting when no gain is expected, and
// probes again within a bounded share of the time (docs/drafting/draft_length.md). One per engine.
// Costs of rounds are learned from all tenants, acceptance from each tenant's own rounds.
// Thread-compatible.
class SpeculationPolicy {
 public:
  // Returns the choices for the decoding sequences of the next round. `other_rows`: rows of the
  // pass that belong to other sequences.
  std::vector<DraftChoice> Plan(absl::Span<const DraftCandidate> candidates, int other_rows);

  // Whether a draft model should read a prompt of `num_tokens` together with the target: if it
  // drafted recently, and promises to save more than that in an answer of up to `num_wanted`
  // tokens.
  bool ReadsPrompt(const TenantSpeculation& tenant, int num_tokens, int num_wanted) const;

  // Statistics of requests without a salt. Only these are saved for the next process.
  TenantSpeculation& unsalted() { return unsalted_; }
  const TenantSpeculation& unsalted() const { return unsalted_; }
  // Whether the last planned round drafts only to see whether drafts pay.
  bool is_probing() const { return is_probing_; }

  // Whether the times of the next round are measured. The first short rounds after a long read are
  // not, because processor caches hold other data then (plain passes of SmolLM2 after a prompt: 3.8
  // ms in the first rounds, 3.4 in the next, and 2.3 from the tenth on). If prompts keep coming,
  // some of these rounds are measured after all.
  bool measures() const {
    const int rounds_to_warm = costs_.knows_nothing() ? kFirstRoundsToWarm : kRoundsToWarm;
    return rounds_since_reading_ >= rounds_to_warm || costs_.has_long_passes() ||
           rounds_unmeasured_ >= kMaxRoundsWithoutModel;
  }
  struct RoundEnd {
    bool has_read_much = false;
    bool is_disturbed = false;  // its times show what other processes did
    int num_tokens = 0;         // emitted
    Instant start = Instant();
    Instant end = Instant();
  };
  // Call after every round. Its observations count from the next round on.
  void EndRound(const RoundEnd& round) {
    const bool has_read_much = round.has_read_much;
    if (check_ != nullptr) {
      check_->Observe(round.num_tokens,
                      round.is_disturbed ? absl::InfiniteDuration() : TimeOf(round));
    }
    if (round.is_disturbed) rounds_for_a_pass_ += kRoundsForDisturbance;
    last_end_ = round.end;
    ++num_rounds_;
    rounds_unmeasured_ = measures() && !has_read_much ? 0 : rounds_unmeasured_ + 1;
    rounds_since_reading_ = has_read_much ? 0 : rounds_since_reading_ + 1;
  }
  // Saves or restores costs, acceptance, and whether speculation paid; without the statistics of
  // tenants that have a salt.
  void Serialize(StateArchive* archive);
  // Rounds since the start of the process.
  int64_t num_rounds() const { return num_rounds_; }
  // Whether rounds in which the engine's thread waited for a processor are disturbed. Not where it
  // waits for a device or for other processes.
  bool watches_processor() const { return watches_processor_; }
  void set_watches_processor(bool watches) { watches_processor_ = watches; }
  RoundCosts& costs() { return costs_; }
  const RoundCosts& costs() const { return costs_; }

 private:
  static constexpr int kMaxRoundsWithoutModel = TenantSpeculation::kMaxRoundsWithoutModel;
  // A disturbed round counts for this many that were to measure a plain pass: the next ones will
  // hardly be measured either.
  static constexpr int kRoundsForDisturbance = 3;
  static constexpr int kRoundsToWarm = 4;
  static constexpr int kFirstRoundsToWarm = 8;  // later measurements are relative to the first

  // Returns the time of the round, plus the time since the previous one unless that is longer.
  absl::Duration TimeOf(const RoundEnd& round) const {
    const absl::Duration own = round.end - round.start;
    const absl::Duration between = round.start - last_end_;
    return absl::ZeroDuration() < between && between < own ? own + between : own;
  }
  TenantSpeculation* TenantOf(absl::Span<const DraftCandidate> candidates);
  bool TriesModel(absl::Span<const DraftCandidate> candidates, int other_rows,
                  std::vector<DraftChoice>* choices);
  static void AllowStopping(const DraftPlan& plan, absl::Span<const DraftCandidate> candidates,
                            std::vector<DraftChoice>* choices);
  void Explore(absl::Span<const DraftCandidate> candidates, const TenantSpeculation& tenant,
               std::vector<DraftChoice>* choices);
  bool Probe(absl::Span<const DraftCandidate> candidates, int num_rows, TenantSpeculation* tenant,
             std::vector<DraftChoice>* choices);

  RoundCosts costs_;
  TenantSpeculation unsalted_;
  TenantSpeculation mixed_;  // for rounds that several tenants share; without their acceptance
  SpeedupMonitor* check_ = nullptr;  // the monitor that allowed or refused the current round
  Instant last_end_;
  int64_t num_rounds_ = 0;
  int rounds_since_reading_ = 0;
  int rounds_unmeasured_ = 0;
  bool is_probing_ = false;
  bool watches_processor_ = false;
  int rounds_for_a_pass_ = 0;
  int rounds_for_a_step_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_
