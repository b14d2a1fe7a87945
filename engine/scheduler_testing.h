// Sessions over a cache that consists only of page tables, for tests of the scheduler.
#ifndef TANDEM_ENGINE_SCHEDULER_TESTING_H_
#define TANDEM_ENGINE_SCHEDULER_TESTING_H_

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {

struct Planned {
  std::vector<RoundStep> steps;
  std::vector<Session*> preempted;
};

// Sessions, and the engine's steps from sessions to a plan.
class World {
 public:
  World(int num_pages, int page_size)
      : cache_(*PagedKvCache::Create(
            nullptr, {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .page_size = page_size},
            num_pages)) {}

  // Adds a session that speculates with `draft_tokens`; without a drafter if negative.
  Session* Add(std::vector<TokenId> prompt, int max_tokens, int draft_tokens) {
    auto session = std::make_unique<Session>();
    session->tokens = std::move(prompt);
    session->prompt_length = session->length();
    session->max_length = session->length() + max_tokens;
    if (draft_tokens >= 0) {
      session->draft_tokens = draft_tokens;
      session->draft_options = {{.max_tokens = kMaxDraftTokens, .num_unread = 1}};
      session->draft_state = std::make_unique<DraftState>();
    }
    sessions_.push_back(std::move(session));
    return sessions_.back().get();
  }
  Session* Add(int prompt_length, int max_tokens = 100, int draft_tokens = -1) {
    return Add(std::vector<TokenId>(prompt_length, 1), max_tokens, draft_tokens);
  }
  // Adds a session that has read its prompt and chosen a token.
  Session* AddDecoding(int prompt_length, int max_tokens = 100, int draft_tokens = -1) {
    Session* session = Add(prompt_length, max_tokens, draft_tokens);
    Read(session, prompt_length);
    session->tokens.push_back(1);
    return session;
  }
  void Read(Session* session, int count) {
    if (!session->is_running) {
      session->is_running = true;
      session->target_kv = cache_->NewSequence();
    }
    ASSERT_TRUE(session->target_kv.Extend(count).ok());
  }
  void Preempt(Session* session) {
    session->target_kv = KvSequence();
    session->is_running = false;
  }

  Planned Plan(int max_batch = 8, int chunk_tokens = 256, bool shares_prefixes = false) {
    std::vector<Session*> running = Admit(
        unfinished(), max_batch, *cache_,
        [this](const Session& s) { return cache_->NewSequenceWithPrefix(s.tokens); },
        [this](Session* s, KvSequence found) {
          ++num_admitted_;
          found_tokens_ += found.length();
          s->target_kv = std::move(found);
        });
    Planned planned;
    for (;;) {
      RoundPlan plan =
          PlanRound(running, chunk_tokens, cache_->num_available_pages(), shares_prefixes);
      EXPECT_TRUE(!plan.preempts_youngest || (plan.steps.empty() && running.size() > 1));
      if (!plan.preempts_youngest) {
        AddDrafts(&policy_, &plan);
        planned.steps = std::move(plan.steps);
        return planned;
      }
      planned.preempted.push_back(running.back());
      Preempt(running.back());
      running.pop_back();
    }
  }

  std::vector<Session*> unfinished() const {
    std::vector<Session*> sessions;
    for (const auto& session : sessions_) {
      if (!session->finished) sessions.push_back(session.get());
    }
    return sessions;
  }
  PagedKvCache& cache() { return *cache_; }
  int found_tokens() const { return found_tokens_; }
  int num_let_in() const { return num_admitted_; }
  void CheckIntegrity() const {
    std::vector<const KvSequence*> sequences;
    for (const auto& session : sessions_) sequences.push_back(&session->target_kv);
    const absl::Status status = cache_->CheckIntegrity(sequences);
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  SpeculationPolicy policy_;
  std::unique_ptr<PagedKvCache> cache_;
  int found_tokens_ = 0;
  int num_admitted_ = 0;
  std::deque<std::unique_ptr<Session>> sessions_;
};

inline auto Step(const Session* session, int num_fed, int draft_tokens) {
  return testing::AllOf(testing::Field("session", &RoundStep::session, session),
                        testing::Field("num_fed", &RoundStep::num_fed, num_fed),
                        testing::Field("granted", &RoundStep::granted, draft_tokens));
}

}  // namespace tandem

#endif  // TANDEM_ENGINE_SCHEDULER_TESTING_H_
