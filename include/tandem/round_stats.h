#ifndef TANDEM_INCLUDE_TANDEM_ROUND_STATS_H_
#define TANDEM_INCLUDE_TANDEM_ROUND_STATS_H_

#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "tandem/draft_source.h"
#include "tandem/draft_tokens.h"

namespace tandem {

// Counts over rounds, which are passes of the target that emitted tokens. All counts are plain
// sums, so the stats of sessions, threads and runs can be added.
struct RoundStats {
  // Draft tokens from one source.
  struct SourceCounts {
    int64_t proposed = 0;
    int64_t accepted = 0;

    bool operator==(const SourceCounts&) const = default;
  };

  int64_t rounds = 0;
  int64_t proposed = 0;  // draft tokens that the target verified
  int64_t accepted = 0;  // draft tokens that were kept
  int64_t emitted = 0;   // accepted, correction, bonus and plain tokens
  std::array<int64_t, kMaxDraftTokens> proposed_at{};      // rounds that verified draft token i
  std::array<int64_t, kMaxDraftTokens> accepted_at{};      // rounds that kept draft token i
  std::array<SourceCounts, kNumDraftSources> by_source{};  // by DraftSource; they add up
  int64_t draft_failures = 0;   // rounds whose draft failed and was dropped
  int64_t probes = 0;           // rounds that drafted only to see whether drafts pay off
  absl::Duration probe_time;    // extra time of probes over plain rounds
  absl::Duration prefill_time;  // passes up to the one that completes the prompt
  absl::Duration draft_time;    // of all rounds
  absl::Duration verify_time;   // passes after the prompt is complete

  // Adds a round that verified `num_proposed` tokens from `source`, kept `num_accepted` and emitted
  // `num_emitted`.
  void Add(DraftSource source, int num_proposed, int num_accepted, int num_emitted);
  RoundStats& operator+=(const RoundStats& other);

  const SourceCounts& Of(DraftSource source) const { return by_source[static_cast<int>(source)]; }
  // accepted / proposed. Falls as k grows even if the draft is equally good; compare
  // AcceptanceAt().
  double AcceptanceRate() const {
    return proposed == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(proposed);
  }
  double AcceptanceAt(int i) const {
    return proposed_at[i] == 0
               ? 0.0
               : static_cast<double>(accepted_at[i]) / static_cast<double>(proposed_at[i]);
  }
  double TokensPerRound() const {
    return rounds == 0 ? 0.0 : static_cast<double>(emitted) / static_cast<double>(rounds);
  }
};

// The rounds of one sequence by the lengths of their drafts. Not in RoundStats, which every round
// adds up over all sequences: 8 KB of each.
struct RoundsByLength {
  // [k][j]: rounds that verified k draft tokens and kept j.
  std::array<std::array<int64_t, kMaxDraftTokens + 1>, kMaxDraftTokens + 1> counts{};

  void Add(int num_proposed, int num_accepted) { ++counts[num_proposed][num_accepted]; }
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ROUND_STATS_H_
