#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool HoldsNothing(const Session& session) { return session.target_kv.length() == 0; }

// Whether a session has yet to be let in: new, with a prefix hit at most, or preempted.
bool Waits(const Session& session) {
  return HoldsNothing(session) || (session.num_output() == 0 &&
                                   session.target_kv.length() == session.completion.cached_tokens);
}

struct Attempt {
  std::vector<RoundStep> steps;
  int first_short = -1;  // the first candidate that lacks pages for its step, or -1
};

// What the pages allow. With null `costs` nobody speculates.
Attempt TryPlan(absl::Span<Session* const> candidates, const ScheduleLimits& limits,
                const RoundCosts* costs) {
  Attempt attempt;
  int64_t free_pages = limits.free_pages;
  int chunk = limits.chunk_tokens;
  bool may_admit = true;
  for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
    Session* session = candidates[i];
    const int num_pending = session->num_pending();
    // Let in only when all there is to read fits, so that it is not preempted right away; nobody
    // overtakes. The oldest may preempt the others.
    const bool waits = i > 0 && Waits(*session);
    if (waits && (!may_admit || session->target_kv.PagesToExtend(num_pending) > free_pages)) {
      may_admit = false;
      continue;
    }
    // A sequence in decoding (or catching up one verified row) never waits for the prompts' chunk.
    const bool takes_chunk = num_pending > 2;
    RoundStep step{.session = session, .num_fed = num_pending, .draft_tokens = 0};
    if (takes_chunk) step.num_fed = std::min(num_pending, chunk);
    if (step.num_fed == 0) {
      if (waits) may_admit = false;
      continue;
    }
    if (costs != nullptr && step.completes() && session->draft_state != nullptr) {
      step.draft_tokens = std::min(session->draft_length.Next(*costs), session->DraftRoom());
    }
    int64_t pages = session->target_kv.PagesToExtend(step.num_fed + step.draft_tokens);
    if (pages > free_pages) {
      step.draft_tokens = 0;
      pages = session->target_kv.PagesToExtend(step.num_fed);
    }
    if (pages > free_pages) {
      attempt.first_short = i;
      return attempt;
    }
    free_pages -= pages;
    if (takes_chunk) chunk -= step.num_fed;
    attempt.steps.push_back(step);
  }
  return attempt;
}

}  // namespace

RoundPlan PlanRound(absl::Span<Session* const> sessions, const ScheduleLimits& limits,
                    const RoundCosts& costs) {
  const absl::Span<Session* const> candidates = sessions.subspan(0, limits.max_batch);
  Attempt attempt = TryPlan(candidates, limits, &costs);
  if (attempt.first_short < 0) return {.steps = std::move(attempt.steps), .preempted = {}};
  // Short of pages, drafts go before anybody's tokens do.
  attempt = TryPlan(candidates, limits, nullptr);
  if (attempt.first_short < 0) return {.steps = std::move(attempt.steps), .preempted = {}};
  for (int i = static_cast<int>(candidates.size()) - 1; i > attempt.first_short; --i) {
    // How many pages this frees is known only afterwards: those it shares stay.
    if (!HoldsNothing(*candidates[i])) return {.steps = {}, .preempted = {candidates[i]}};
  }
  return {.steps = std::move(attempt.steps), .preempted = {}};
}

}  // namespace tandem
