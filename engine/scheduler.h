#ifndef TANDEM_ENGINE_SCHEDULER_H_
#define TANDEM_ENGINE_SCHEDULER_H_

#include <vector>

#include "absl/types/span.h"
#include "draft/speculation_policy.h"
#include "engine/session.h"

namespace tandem {

// One session's part of a round: it reads `num_fed` committed tokens, and if none are then left,
// speculates with up to `draft_tokens`.
struct RoundStep {
  Session* session = nullptr;
  int num_fed = 0;
  int draft_tokens = 0;
  DraftOption option = {};  // what they are drafted by

  bool completes() const { return num_fed == session->num_pending(); }
};

struct RoundPlan {
  std::vector<RoundStep> steps = {};
  // Sessions that give their pages back first and are computed again later, to the same bits.
  std::vector<Session*> preempted = {};
};

// Who has no more than this to read, as in decoding, never waits for the prompts' chunk.
inline constexpr int kMostWithoutChunk = 2;

struct ScheduleLimits {
  int max_batch = 1;     // sequences per round
  int chunk_tokens = 1;  // rows per round as long as prompts are read
  int free_pages = 0;    // of the target's cache
};

// What is left of the chunk for prompts however many decode.
constexpr int LeastForPrompts(int chunk_tokens) { return (chunk_tokens + 3) / 4; }

// Chooses what the next round does for `sessions`, oldest first (docs/scheduling.md). Sessions that
// decode come before prompts, which share what is left of the chunk: half is the oldest's, the rest
// goes to the shortest. Pages go to the oldest, and when they run out the youngest give theirs
// back. Drafts take pages that are left. Changes nothing but `policy`, which is asked about drafts.
// An empty plan means that the oldest session does not fit even alone, beside published pages that
// cannot be evicted.
RoundPlan PlanRound(absl::Span<Session* const> sessions, const ScheduleLimits& limits,
                    SpeculationPolicy* policy);

}  // namespace tandem

#endif  // TANDEM_ENGINE_SCHEDULER_H_
