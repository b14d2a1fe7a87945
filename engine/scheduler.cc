#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

bool NeedsChunk(const Session& session) { return session.num_pending() > kMaxDecodeTokens; }

// The rows of a decoding session. Counts only drafts of a fixed length: the policy weighs the cost
// of those that it chooses.
int RowsOf(const Session& session) {
  const bool drafts = session.draft_tokens > 0 && !session.draft_options.empty();
  return session.num_pending() + (drafts ? std::min(session.draft_tokens, session.DraftRoom()) : 0);
}

// Returns how many unread tokens of `session` will be in the prefix cache after this round because
// `other` reads `num_fed` tokens of the same text. Counts full pages, without the session's last
// token.
int NumFoundAfter(const Session& session, const Session& other, int num_fed) {
  if (session.target_kv.variant() != other.target_kv.variant() ||
      !IsSameSalt(session.salt, other.salt)) {
    return 0;
  }
  const auto page_size = static_cast<size_t>(session.target_kv.cache()->layout().page_size);
  const absl::Span<const PageId> own_pages = session.target_kv.pages();
  const absl::Span<const PageId> pages = other.target_kv.pages();
  // Equal text has equal pages.
  const size_t num_known = session.target_kv.length() / page_size;
  if (num_known > pages.size()) return 0;
  if (num_known > 0 && own_pages[num_known - 1] != pages[num_known - 1]) return 0;
  const auto begin = static_cast<ptrdiff_t>(num_known * page_size);
  const auto end = std::min<ptrdiff_t>(other.target_kv.length() + num_fed, session.length() - 1);
  if (begin >= end) return 0;
  const auto differs = std::mismatch(session.tokens.begin() + begin, session.tokens.begin() + end,
                                     other.tokens.begin() + begin);
  const size_t num_common = differs.first - session.tokens.begin();
  const size_t found_before = other.target_kv.length() / page_size * page_size;
  const size_t has = std::max<size_t>(session.target_kv.length(), found_before);
  return static_cast<int>(num_common / page_size * page_size) - static_cast<int>(has);
}

// Returns how many tokens each session reads. Decoding sessions read all their tokens. Prompts
// share the rest of the chunk: half goes to the oldest prompt, the rest to those with the fewest
// unread tokens. With `shares_prefixes`, a prompt waits if most of its share is read by another
// session in this round.
std::vector<int> ShareRows(absl::Span<Session* const> sessions, int chunk_tokens,
                           bool shares_prefixes) {
  std::vector<int> num_fed(sessions.size());
  std::vector<int> prompts;
  int left = chunk_tokens;
  for (int i = 0; i < static_cast<int>(sessions.size()); ++i) {
    if (NeedsChunk(*sessions[i])) {
      prompts.push_back(i);
    } else if (!sessions[i]->sits_out) {
      num_fed[i] = sessions[i]->num_pending();
      left -= RowsOf(*sessions[i]);
    }
  }
  if (prompts.empty()) return num_fed;
  left = std::max(left, MinForPrompts(chunk_tokens));
  const auto waits = [&](int i, int count) {
    if (!shares_prefixes || num_fed[i] > 0 || sessions[i]->NeedsPromptLogprobs()) return false;
    return std::any_of(prompts.begin(), prompts.end(), [&](int other) {
      return num_fed[other] > 0 &&
             2 * NumFoundAfter(*sessions[i], *sessions[other], num_fed[other]) >= count;
    });
  };
  const auto give = [&](int i, int most) {
    const int count = std::min(most, sessions[i]->num_pending() - num_fed[i]);
    if (count == 0 || waits(i, count)) return;
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

void TakeTurns(int max_batch, std::vector<std::unique_ptr<Session>>* sessions) {
  auto next = std::find_if_not(sessions->begin(), sessions->end(),
                               [](const auto& session) { return session->was_admitted; });
  const auto end = sessions->end();
  if (next - sessions->begin() >= max_batch) return;
  std::for_each(next, end, [](auto& s) { s->client->planned = s->client->served; });
  for (; next != end && next - sessions->begin() < max_batch; ++next) {
    const auto first = std::min_element(next, end, [](const auto& a, const auto& b) {
      return a->client->planned < b->client->planned;
    });
    (*first)->client->planned += (*first)->prompt_length;
    std::rotate(next, first, first + 1);
  }
}

absl::Duration ShareConstraintTime(absl::Span<Session* const> sessions) {
  std::vector<Session*> owing;
  for (Session* session : sessions) {
    const absl::Duration work = session->history.constraint_work();
    session->constraint_debt += work - std::exchange(session->constraint_work, work);
    if (session->constraint_debt > absl::ZeroDuration()) owing.push_back(session);
  }
  std::stable_sort(owing.begin(), owing.end(), [](const Session* a, const Session* b) {
    return a->constraint_debt < b->constraint_debt;
  });
  absl::Duration left = kConstraintTime;
  for (size_t i = 0; i < owing.size(); ++i) {
    absl::Duration& debt = owing[i]->constraint_debt;
    const absl::Duration paid = std::min(debt, left / static_cast<int64_t>(owing.size() - i));
    debt -= paid;
    left -= paid;
  }
  bool others_run = false;
  for (Session* session : sessions) {
    session->sits_out = session->constraint_debt > absl::ZeroDuration() && !NeedsChunk(*session);
    others_run = others_run || !session->sits_out;
  }
  if (others_run) return left;
  absl::Duration paid;  // by each session
  absl::Duration sum;
  for (Session* session : owing) {
    sum += session->constraint_debt;
    if (session == owing.front() || sum <= kMaxConstraintTime) {
      paid = session->constraint_debt;
      session->sits_out = false;
    }
    session->constraint_debt -= paid;
  }
  return left;
}

std::vector<Session*> Admit(absl::Span<Session* const> sessions, int max_batch,
                            const PagedKvCache& cache,
                            absl::FunctionRef<KvSequence(const Session&)> find_prefix,
                            absl::FunctionRef<void(Session*, KvSequence)> begin) {
  std::vector<Session*> running;
  int64_t num_reserved_pages = 0;  // available pages that running sessions will need
  for (Session* session : sessions.subspan(0, max_batch)) {
    KvSequence found = session->is_running ? KvSequence() : find_prefix(*session);
    const KvSequence& kv = session->is_running ? session->target_kv : found;
    num_reserved_pages += kv.PagesToExtend(session->length() - kv.length());
    if (!session->is_running) {
      if (!running.empty() && num_reserved_pages > cache.num_available_pages()) break;
      session->is_running = true;
      begin(session, std::move(found));
    }
    running.push_back(session);
  }
  return running;
}

RoundPlan PlanRound(absl::Span<Session* const> sessions, int chunk_tokens, int64_t free_pages,
                    bool shares_prefixes) {
  RoundPlan plan = {.pages_for_drafts = free_pages};
  const std::vector<int> num_fed = ShareRows(sessions, chunk_tokens, shares_prefixes);
  int rows_for_choices = chunk_tokens;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const bool chooses = sessions[i]->IsChoosing();
    if (num_fed[i] == 0 && !chooses) continue;
    const KvSequence& kv = sessions[i]->target_kv;
    ChoiceScores::Part part;
    if (chooses) part = sessions[i]->choices->NextPart(kv, rows_for_choices, plan.pages_for_drafts);
    const int64_t pages = chooses ? part.pages : kv.PagesToExtend(num_fed[i]);
    if (pages > plan.pages_for_drafts) {
      // The number of pages that a preemption frees is known only afterwards: shared pages stay in
      // use.
      if (i + 1 < sessions.size()) return {.preempts_youngest = true};
      break;  // the youngest waits and keeps its pages; drafts release theirs after the round
    }
    plan.pages_for_drafts -= pages;
    if (chooses) {
      rows_for_choices -= part.num_rows;
      plan.choices.push_back({.session = sessions[i], .part = part});
    } else {
      plan.steps.push_back({.session = sessions[i], .num_fed = num_fed[i]});
    }
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
    TenantSpeculation& tenant = SpeculationOf(s, policy);
    decoding.push_back(&step);
    candidates.push_back({.options = s.draft_options,
                          .draft_tokens = s.draft_tokens,
                          .room = s.DraftRoom(),
                          .num_wanted = s.max_length - s.length(),
                          .num_written = s.length() - s.prompt_length,
                          .lost = s.lost,
                          .own = &s.acceptance,
                          .wider = &tenant.AcceptanceAt(s.sampling.temperature),
                          .confidence = &tenant.ConfidenceAt(s.sampling.temperature),
                          .tenant = &tenant});
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
    step.granted = choices[i].num_tokens;
    step.option = candidates[i].options[choices[i].option];
    step.stop = choices[i].stop;
  }
}

}  // namespace tandem
