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
  int64_t free_pages = 0;
};

// What the pages allow, without any draft.
Attempt TryPlan(absl::Span<Session* const> candidates, const ScheduleLimits& limits) {
  Attempt attempt{.steps = {}, .first_short = -1, .free_pages = limits.free_pages};
  int chunk = limits.chunk_tokens;
  bool may_admit = true;
  for (int i = 0; i < static_cast<int>(candidates.size()); ++i) {
    Session* session = candidates[i];
    const int num_pending = session->num_pending();
    // Let in only when all there is to read fits, so that it is not preempted right away; nobody
    // overtakes. The oldest may preempt the others.
    const bool waits = i > 0 && Waits(*session);
    if (waits &&
        (!may_admit || session->target_kv.PagesToExtend(num_pending) > attempt.free_pages)) {
      may_admit = false;
      continue;
    }
    const bool takes_chunk = num_pending > kMostWithoutChunk;
    RoundStep step{.session = session, .num_fed = num_pending, .draft_tokens = 0};
    if (takes_chunk) step.num_fed = std::min(num_pending, chunk);
    if (step.num_fed == 0) {
      if (waits) may_admit = false;
      continue;
    }
    const int64_t pages = session->target_kv.PagesToExtend(step.num_fed);
    if (pages > attempt.free_pages) {
      attempt.first_short = i;
      return attempt;
    }
    attempt.free_pages -= pages;
    if (takes_chunk) chunk -= step.num_fed;
    attempt.steps.push_back(step);
  }
  return attempt;
}

// Asks the policy how much the sessions that decode should draft, and grants what finds pages.
void AddDrafts(SpeculationPolicy* policy, Attempt* attempt) {
  std::vector<RoundStep*> decoding;
  std::vector<DraftCandidate> candidates;
  int num_rows = 0;
  for (RoundStep& step : attempt->steps) {
    num_rows += step.num_fed;
    if (!step.completes()) continue;
    Session& s = *step.session;
    decoding.push_back(&step);
    candidates.push_back({.options = s.draft_options,
                          .draft_tokens = s.draft_tokens,
                          .room = s.DraftRoom(),
                          .num_wanted = s.max_length - s.length(),
                          .own = &s.acceptance,
                          .wider = &policy->AcceptanceAt(s.sampling.temperature)});
  }
  const std::vector<DraftChoice> choices =
      policy->Plan(candidates, num_rows - static_cast<int>(candidates.size()));
  for (size_t i = 0; i < decoding.size(); ++i) {
    if (choices[i].num_tokens == 0) continue;
    RoundStep& step = *decoding[i];
    const KvSequence& kv = step.session->target_kv;
    const int64_t pages =
        kv.PagesToExtend(step.num_fed + choices[i].num_tokens) - kv.PagesToExtend(step.num_fed);
    if (pages > attempt->free_pages) continue;
    attempt->free_pages -= pages;
    step.draft_tokens = choices[i].num_tokens;
    step.option = candidates[i].options[choices[i].option];
  }
}

}  // namespace

RoundPlan PlanRound(absl::Span<Session* const> sessions, const ScheduleLimits& limits,
                    SpeculationPolicy* policy) {
  const absl::Span<Session* const> candidates = sessions.subspan(0, limits.max_batch);
  Attempt attempt = TryPlan(candidates, limits);
  for (int i = static_cast<int>(candidates.size()) - 1;
       attempt.first_short >= 0 && i > attempt.first_short; --i) {
    // How many pages this frees is known only afterwards: those it shares stay.
    if (!HoldsNothing(*candidates[i])) return {.preempted = {candidates[i]}};
  }
  if (attempt.first_short < 0) AddDrafts(policy, &attempt);
  return {.steps = std::move(attempt.steps)};
}

}  // namespace tandem
