#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool NeedsChunk(const Session& session) { return session.num_pending() > kMostWithoutChunk; }

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
  give(prompts.front(), left - left / 2);
  std::stable_sort(prompts.begin(), prompts.end(), [&](int a, int b) {
    return sessions[a]->num_pending() < sessions[b]->num_pending();
  });
  for (const int i : prompts) give(i, left);
  return num_fed;
}

}  // namespace

std::vector<Session*> LetIn(absl::Span<Session* const> sessions, int max_batch,
                            const PagedKvCache& cache,
                            absl::FunctionRef<KvSequence(const Session&)> find_prefix,
                            absl::FunctionRef<void(Session*, KvSequence)> begin) {
  std::vector<Session*> running;
  int64_t spoken_for = 0;  // pages of the available, by what the running have yet to read
  for (Session* session : sessions.subspan(0, max_batch)) {
    KvSequence found = session->is_running ? KvSequence() : find_prefix(*session);
    const KvSequence& kv = session->is_running ? session->target_kv : found;
    spoken_for += kv.PagesToExtend(session->length() - kv.length());
    if (!session->is_running) {
      if (!running.empty() && spoken_for > cache.num_available_pages()) break;
      session->is_running = true;
      begin(session, std::move(found));
    }
    running.push_back(session);
  }
  return running;
}

RoundPlan PlanRound(absl::Span<Session* const> sessions, int chunk_tokens, int64_t free_pages) {
  RoundPlan plan = {.pages_for_drafts = free_pages};
  const std::vector<int> num_fed = ShareRows(sessions, chunk_tokens);
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (num_fed[i] == 0) continue;
    const int64_t pages = sessions[i]->target_kv.PagesToExtend(num_fed[i]);
    if (pages > plan.pages_for_drafts) {
      // How many pages a preemption frees is known only afterwards: those it shares stay.
      if (i + 1 < sessions.size()) return {.preempts_youngest = true};
      break;  // the youngest waits with what it holds; drafts give theirs back after the round
    }
    plan.pages_for_drafts -= pages;
    plan.steps.push_back({.session = sessions[i], .num_fed = num_fed[i]});
  }
  return plan;
}

void AddDrafts(SpeculationPolicy* policy, RoundPlan* plan) {
  std::vector<RoundStep*> decoding;
  std::vector<DraftCandidate> candidates;
  int num_rows = 0;
  for (RoundStep& step : plan->steps) {
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
    if (pages > plan->pages_for_drafts) continue;
    plan->pages_for_drafts -= pages;
    step.draft_tokens = choices[i].num_tokens;
    step.option = candidates[i].options[choices[i].option];
  }
}

}  // namespace tandem
