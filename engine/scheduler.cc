#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool HoldsNothing(const Session& session) { return session.target_kv.length() == 0; }

bool NeedsChunk(const Session& session) { return session.num_pending() > kMostWithoutChunk; }

int64_t PagesToRead(const Session& session) {
  return session.target_kv.PagesToExtend(session.num_pending());
}

// Those whom the round may serve. Who waits is let in when all there is to read fits beside what
// the others have yet to read, so that it is not preempted right away; nobody overtakes. The oldest
// may preempt the others.
std::vector<Session*> LetIn(absl::Span<Session* const> candidates, int64_t free_pages) {
  for (const Session* session : candidates) {
    if (!session->waits()) free_pages -= PagesToRead(*session);
  }
  std::vector<Session*> let_in;
  bool may_enter = true;
  for (Session* session : candidates) {
    if (session->waits()) {
      const int64_t pages = PagesToRead(*session);
      may_enter = let_in.empty() || (may_enter && pages <= free_pages);
      if (!may_enter) continue;
      free_pages -= pages;
    }
    let_in.push_back(session);
  }
  return let_in;
}

// The rows of one that decodes; a draft length that the policy chooses is the policy's to weigh.
int RowsOf(const Session& session) {
  const bool drafts = session.draft_tokens > 0 && !session.draft_options.empty();
  return session.num_pending() + (drafts ? std::min(session.draft_tokens, session.DraftRoom()) : 0);
}

// How many tokens each reads: all for those that decode, a share of what they leave of the chunk
// for prompts. Half of that is the oldest prompt's; the rest goes to those with the least to read.
std::vector<int> ShareRows(absl::Span<Session* const> sessions, int chunk_tokens) {
  std::vector<int> num_fed(sessions.size());
  std::vector<int> prompts;
  int left = chunk_tokens;
  for (int i = 0; i < static_cast<int>(sessions.size()); ++i) {
    if (NeedsChunk(*sessions[i])) {
      prompts.push_back(i);
    } else {
      num_fed[i] = sessions[i]->num_pending();
      left -= RowsOf(*sessions[i]);
    }
  }
  if (prompts.empty()) return num_fed;
  left = std::max(left, LeastForPrompts(chunk_tokens));
  const auto give = [&](int i, int most) {
    const int count = std::min(most, sessions[i]->num_pending() - num_fed[i]);
    num_fed[i] += count;
    left -= count;
  };
  give(prompts.front(), (left + 1) / 2);
  std::stable_sort(prompts.begin(), prompts.end(), [&](int a, int b) {
    return sessions[a]->num_pending() < sessions[b]->num_pending();
  });
  for (const int i : prompts) give(i, left);
  return num_fed;
}

struct Attempt {
  std::vector<RoundStep> steps;
  Session* first_short = nullptr;  // the first that lacks pages for its step
  int64_t free_pages = 0;
};

// What the pages allow, without any draft.
Attempt TryPlan(absl::Span<Session* const> candidates, const ScheduleLimits& limits) {
  Attempt attempt{.steps = {}, .first_short = nullptr, .free_pages = limits.free_pages};
  const std::vector<Session*> sessions = LetIn(candidates, limits.free_pages);
  const std::vector<int> num_fed = ShareRows(sessions, limits.chunk_tokens);
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (num_fed[i] == 0) continue;
    const int64_t pages = sessions[i]->target_kv.PagesToExtend(num_fed[i]);
    if (pages > attempt.free_pages) {
      attempt.first_short = sessions[i];
      return attempt;
    }
    attempt.free_pages -= pages;
    attempt.steps.push_back({.session = sessions[i], .num_fed = num_fed[i], .draft_tokens = 0});
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
  if (attempt.first_short != nullptr) {
    // How many pages a preemption frees is known only afterwards: those it shares stay.
    for (auto it = candidates.rbegin(); *it != attempt.first_short; ++it) {
      if (!HoldsNothing(**it)) return {.preempted = {*it}};
    }
    return {.steps = std::move(attempt.steps)};
  }
  AddDrafts(policy, &attempt);
  return {.steps = std::move(attempt.steps)};
}

}  // namespace tandem
