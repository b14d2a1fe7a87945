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
  int chunk_tokens = 1;  // prompt tokens per round
  int free_pages = 0;    // of the target's cache
};

// Chooses what the next round does for `sessions`, oldest first. Sessions that decode come before
// prompts, which share the round's chunk; pages go to the oldest, and when they run out the
// youngest give theirs back. Drafts take pages that are left. Changes nothing but `policy`, which
// is asked about drafts. An empty plan means that the oldest session does not fit even alone,
// beside published pages that cannot be evicted.
RoundPlan PlanRound(absl::Span<Session* const> sessions, const ScheduleLimits& limits,
                    SpeculationPolicy* policy);

}  // namespace tandem

#endif  // TANDEM_ENGINE_SCHEDULER_H_
