#include "tandem/round_stats.h"

namespace tandem {

void RoundStats::Add(DraftSource source, int num_proposed, int num_accepted, int num_emitted) {
  SourceCounts& counts = by_source[static_cast<int>(source)];
  counts.proposed += num_proposed;
  counts.accepted += num_accepted;
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
  for (int i = 0; i < kNumDraftSources; ++i) {
    by_source[i].proposed += other.by_source[i].proposed;
    by_source[i].accepted += other.by_source[i].accepted;
  }
  draft_failures += other.draft_failures;
  probes += other.probes;
  probe_time += other.probe_time;
  prefill_time += other.prefill_time;
  draft_time += other.draft_time;
  verify_time += other.verify_time;
  return *this;
}

}  // namespace tandem
