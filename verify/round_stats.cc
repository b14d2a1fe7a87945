#include "tandem/round_stats.h"

namespace tandem {

void RoundStats::Add(int num_proposed, int num_accepted, int num_emitted) {
  ++rounds;
  proposed += num_proposed;
  accepted += num_accepted;
  emitted += num_emitted;
  for (int i = 0; i < num_proposed; ++i) ++proposed_at[i];
  for (int i = 0; i < num_accepted; ++i) ++accepted_at[i];
}

RoundStats& RoundStats::operator+=(const RoundStats& other) {
  rounds += other.rounds;
  proposed += other.proposed;
  accepted += other.accepted;
  emitted += other.emitted;
  for (int i = 0; i < kMaxDraftTokens; ++i) {
    proposed_at[i] += other.proposed_at[i];
    accepted_at[i] += other.accepted_at[i];
  }
  predicted += other.predicted;
  predicted_kept += other.predicted_kept;
  draft_failures += other.draft_failures;
  probes += other.probes;
  probe_time += other.probe_time;
  prefill_time += other.prefill_time;
  draft_time += other.draft_time;
  verify_time += other.verify_time;
  return *this;
}

}  // namespace tandem
