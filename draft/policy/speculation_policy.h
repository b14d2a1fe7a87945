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

// Decides round by round how much each sequence drafts, and never lets speculation cost more than
// it brings: plans with measurements so far, stops when no gain is expected, and tries again now
// and then within a bounded share of the time (docs/draft_length.md). One per engine. What rounds
// cost is learned from the rounds of all tenants, acceptance from each tenant's own.
// Thread-compatible.
class SpeculationPolicy {
 public:
  // The choices for the next round's decoding sequences; `other_rows` of the pass are not theirs.
  std::vector<DraftChoice> Plan(absl::Span<const DraftCandidate> candidates, int other_rows);

  // Learned from requests without a salt; it is kept for the next process.
  TenantSpeculation& unsalted() { return unsalted_; }
  const TenantSpeculation& unsalted() const { return unsalted_; }
  // Whether the round last planned only tries what is not believed to pay.
  bool is_probing() const { return is_probing_; }

  // Whether the next round's times tell what its rows cost. Those of the first rounds after a long
  // reading do not: processor caches hold other things (three rows after a prompt of 190 tokens
  // took 1041, 696, 503, and then 430 us). Where prompts never cease, they have to do.
  bool measures() const {
    return rounds_since_reading_ >= kRoundsToWarm || rounds_unmeasured_ >= kRoundsOfPatience;
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
  }
  // What outlives the process: costs, acceptance, and whether speculation paid, without that of
  // tenants.
  void Serialize(StateArchive* archive);
  // Rounds since the start of the process.
  int64_t num_rounds() const { return num_rounds_; }
  RoundCosts& costs() { return costs_; }
  const RoundCosts& costs() const { return costs_; }

 private:
  static constexpr int kRoundsOfPatience = TenantSpeculation::kRoundsOfPatience;
  static constexpr int kRoundsToWarm = 4;

  // With the time since the round before, unless there was nothing to do for long.
  absl::Duration TimeOf(const RoundEnd& round) const {
    const absl::Duration own = round.end - round.start;
    const absl::Duration between = round.start - last_end_;
    return absl::ZeroDuration() < between && between < own ? own + between : own;
  }
  TenantSpeculation* TenantOf(absl::Span<const DraftCandidate> candidates);
  bool Calibrates(absl::Span<const DraftCandidate> candidates, int other_rows,
                  std::vector<DraftChoice>* choices);
  static void LetStop(const DraftPlan& plan, absl::Span<const DraftCandidate> candidates,
                      std::vector<DraftChoice>* choices);
  void Explore(absl::Span<const DraftCandidate> candidates, const TenantSpeculation& tenant,
               std::vector<DraftChoice>* choices);
  bool Probe(absl::Span<const DraftCandidate> candidates, int num_rows, TenantSpeculation* tenant,
             std::vector<DraftChoice>* choices);

  RoundCosts costs_;
  TenantSpeculation unsalted_;
  TenantSpeculation mixed_;  // of rounds with sequences of several tenants; not their acceptance
  SpeedupMonitor* check_ = nullptr;  // that was asked for the round
  Instant last_end_;
  int64_t num_rounds_ = 0;
  int rounds_since_reading_ = 0;
  int rounds_unmeasured_ = 0;
  bool is_probing_ = false;
  int rounds_calibrated_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_SPECULATION_POLICY_H_
