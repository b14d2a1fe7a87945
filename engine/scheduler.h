#ifndef TANDEM_ENGINE_SCHEDULER_H_
#define TANDEM_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "draft/policy/speculation_policy.h"
#include "engine/session.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {

// One session's part of a round: it reads `num_fed` committed tokens, and if none are then left,
// speculates with up to `granted` draft tokens.
struct RoundStep {
  Session* session = nullptr;
  int num_fed = 0;
  int granted = 0;          // draft tokens
  DraftOption option = {};  // what they are drafted by
  DraftStop stop = {};

  bool completes() const { return !session->scores_only && num_fed == session->num_pending(); }
};

struct RoundPlan {
  std::vector<RoundStep> steps = {};
  int64_t pages_for_drafts = 0;  // of the target's cache
  // The youngest session is to give its pages back, and then the round to be planned anew.
  bool preempts_youngest = false;
};

// A session with no more than this to read, as in decoding, never waits for the prompts' chunk.
inline constexpr int kMaxDecodeRows = 2;

// What is left of the chunk for prompts however many decode.
constexpr int LeastForPrompts(int chunk_tokens) {
  return chunk_tokens / 4 + (chunk_tokens % 4 > 0);
}

// Admits sessions, and returns all that run, oldest first: at most `max_batch` of `sessions`, which
// are oldest first. A waiting session is admitted when its unread tokens (after the prefix that
// `find_prefix` gives it) fit next to those of the running ones, so that it is not preempted right
// away. None overtakes another, so all running sessions are older than all waiting ones. The oldest
// needs no room: it may preempt the others. `begin` is given the prefix.
std::vector<Session*> Admit(absl::Span<Session* const> sessions, int max_batch,
                            const PagedKvCache& cache,
                            absl::FunctionRef<KvSequence(const Session&)> find_prefix,
                            absl::FunctionRef<void(Session*, KvSequence)> begin);

// Chooses what the next round does for the sessions that run, oldest first, with `free_pages` of
// the target's cache and `chunk_tokens` rows as long as prompts are read (docs/scheduling.md).
// Sessions that decode come before prompts, which share what is left of the chunk: half is the
// oldest's, the rest goes to the shortest. Where what is read can be found by others afterwards
// (`shares_prefixes`), no two read the same beginning in one round: the later one waits if half of
// what it could read would be found. Pages go to the oldest, and when they run out the
// youngest gives its own back. Nobody drafts yet.
//
// Without a step and without a preemption the oldest session does not fit even alone.
RoundPlan PlanRound(absl::Span<Session* const> sessions, int chunk_tokens, int64_t free_pages,
                    bool shares_prefixes = false);

// What speculation has learned from the session's tenant.
inline TenantSpeculation& SpeculationOf(const Session& session, SpeculationPolicy* policy) {
  const bool is_own = session.tenant != nullptr && session.tenant->speculation != nullptr;
  return is_own ? *session.tenant->speculation : policy->unsalted();
}

// Asks the policy what those steps that have read everything should draft, and grants what finds
// pages. Once a round: the policy counts.
void AddDrafts(SpeculationPolicy* policy, RoundPlan* plan);

}  // namespace tandem

#endif  // TANDEM_ENGINE_SCHEDULER_H_
