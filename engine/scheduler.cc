#include "engine/scheduler.h"

#include <algorithm>

namespace tandem {
namespace {

// Whether a session waits for its pages: new, or preempted.
bool HoldsNothing(const Session& session) { return session.target_kv.length() == 0; }

// A session is let in only when all it has to read fits, so that it is not preempted right away.
int64_t PagesToAdmit(const Session& session) {
  return session.target_kv.PagesToExtend(session.num_pending());
}

}  // namespace

RoundPlan PlanRound(absl::Span<Session* const> sessions, const ScheduleLimits& limits,
                    const RoundCosts& costs) {
  RoundPlan plan;
  int64_t free_pages = limits.free_pages;
  int chunk = limits.chunk_tokens;
  std::vector<Session*> candidates;  // oldest first; the youngest at the end may be preempted
  for (Session* session : sessions) {
    if (static_cast<int>(candidates.size()) < limits.max_batch) candidates.push_back(session);
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    Session* session = candidates[i];
    if (HoldsNothing(*session) && PagesToAdmit(*session) > free_pages) break;  // nobody overtakes
    RoundStep step{.session = session};
    step.num_fed = std::min(session->num_pending(), std::max(chunk, 0));
    // A sequence in decoding (or catching up one verified row) never waits for the prompts' chunk.
    if (session->num_pending() <= 2) step.num_fed = session->num_pending();
    if (step.num_fed == 0) continue;
    if (step.completes() && session->draft_state != nullptr) {
      step.draft_tokens = std::min(session->draft_length.Next(costs), session->DraftRoom());
    }
    const auto pages = [&] {
      return session->target_kv.PagesToExtend(step.num_fed + step.draft_tokens);
    };
    if (pages() > free_pages) step.draft_tokens = 0;
    while (pages() > free_pages && candidates.size() > i + 1) {
      Session* youngest = candidates.back();
      candidates.pop_back();
      if (HoldsNothing(*youngest)) continue;
      // What is shared does not come free; counting its own pages would promise too much.
      plan.preempted.push_back(youngest);
      return {.steps = {}, .preempted = plan.preempted};
    }
    if (pages() > free_pages) break;
    free_pages -= pages();
    if (session->num_pending() > 2) chunk -= step.num_fed;
    plan.steps.push_back(step);
  }
  return plan;
}

}  // namespace tandem
