#ifndef TANDEM_ENGINE_SCHEDULER_H_
#define TANDEM_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "draft/policy/speculation_policy.h"
#include "engine/session.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {

// One session's part of a round. It reads `num_fed` committed tokens and, if none are then left
// unread, speculates with up to `granted` draft tokens.
struct RoundStep {
  Session* session = nullptr;
  int num_fed = 0;
  int granted = 0;          // draft tokens
  DraftOption option = {};  // the source of the draft
  DraftStop stop = {};

  bool completes() const { return !session->scores_only && num_fed == session->num_pending(); }
};

// A session that scores the next `part` of its choices in a round.
struct ChoiceStep {
  Session* session = nullptr;
  ChoiceScores::Part part = {};
};

struct RoundPlan {
  std::vector<RoundStep> steps = {};
  std::vector<ChoiceStep> choices = {};
  int64_t pages_for_drafts = 0;  // free pages of the target's cache for drafts
  // The caller must preempt the youngest session and plan the round again.
  bool preempts_youngest = false;

  bool is_empty() const { return steps.empty() && choices.empty(); }
};

// A session with at most this many unread tokens is decoding: it never waits for a share of the
// prompt chunk.
inline constexpr int kMaxDecodeTokens = 2;

// The part of a chunk reserved for prompts, however many sessions decode.
constexpr int MinForPrompts(int chunk_tokens) { return chunk_tokens / 4 + (chunk_tokens % 4 > 0); }

// The processor time that all constraints may take in a round, on average. Common schemas take
// 0.02 ms for each token.
inline constexpr absl::Duration kConstraintTime = absl::Milliseconds(5);
// Once constraints have taken this long in one round, those of further sessions wait for the next.
inline constexpr absl::Duration kMaxConstraintTime = absl::Milliseconds(50);

// Puts the waiting sessions that are to be admitted next before the others, as many as there may be
// places. Clients take turns: the next is the oldest session of the client that was served the
// fewest tokens. The sessions of one client stay in order, and those that were admitted before stay
// first. REQUIRES: those come first, and every other session has a client.
void TakeTurns(int max_batch, std::vector<std::unique_ptr<Session>>* sessions);

// Shares kConstraintTime out among the constraints of the running `sessions`. A session owes the
// time that its constraint has taken. Each round pays equal parts of the debts, and what small ones
// do not need goes to the larger ones. A decoding session that still owes time sits out the round.
// If no session is left to run, those with the smallest debts run, as many as owe
// kMaxConstraintTime together. Returns the time that was not needed.
absl::Duration ShareConstraintTime(absl::Span<Session* const> sessions);

// Admits sessions, and returns all that run, oldest first: at most `max_batch` of `sessions`, which
// are oldest first. A waiting session is admitted when its unread tokens (after the prefix that
// `find_prefix` gives it) fit next to those of the running ones, so that it is not preempted right
// away. Sessions are admitted in order, so all running sessions are older than all waiting ones.
// The oldest is always admitted: it may preempt the others. `begin` starts an admitted session with
// its prefix.
std::vector<Session*> Admit(absl::Span<Session* const> sessions, int max_batch,
                            const PagedKvCache& cache,
                            absl::FunctionRef<KvSequence(const Session&)> find_prefix,
                            absl::FunctionRef<void(Session*, KvSequence)> begin);

// Plans the next round for the running `sessions`, oldest first (docs/scheduling.md). `free_pages`:
// of the target's cache. `chunk_tokens`: rows of a round while prompts are read. Decoding sessions
// come first; prompts share the rest of the chunk: half goes to the oldest prompt, the rest to the
// shortest ones. With `shares_prefixes`, the pages that a session reads can be found by other
// sessions afterwards, so no two sessions read the same beginning in one round: the later one waits
// if at least half of its share would be found. Pages go to the oldest session first; when they run
// out, the youngest is preempted. Does not plan drafts.
//
// Sessions that choose score as many choices as need a chunk of rows together, at least one each.
//
// An empty plan without a preemption means that the oldest session does not fit even alone.
RoundPlan PlanRound(absl::Span<Session* const> sessions, int chunk_tokens, int64_t free_pages,
                    bool shares_prefixes = false);

// What speculation has learned from the session's tenant.
inline TenantSpeculation& SpeculationOf(const Session& session, SpeculationPolicy* policy) {
  const bool is_own = session.tenant != nullptr && session.tenant->speculation != nullptr;
  return is_own ? *session.tenant->speculation : policy->unsalted();
}

// Asks the policy how many tokens each step that completes should draft, and grants a draft if
// there are free pages for it. Call once per round: the policy counts calls.
void AddDrafts(SpeculationPolicy* policy, RoundPlan* plan);

}  // namespace tandem

#endif  // TANDEM_ENGINE_SCHEDULER_H_
