// Tests of turns: clients share the places of an engine, and constraints share the time of a round.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/clients.h"
#include "engine/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

using testing::Each;
using testing::ElementsAre;

// ---- Clients ----

// An engine's queue. Its sessions have a number and a client, and nothing else.
class Queue {
 public:
  void Add(const std::string& client, int count, int prompt_length = 10) {
    for (int i = 0; i < count; ++i) {
      auto session = std::make_unique<Session>();
      session->id = next_id_++;
      session->prompt_length = prompt_length;
      session->client = clients_.Get(client);
      sessions_.push_back(std::move(session));
    }
  }
  // Admits sessions one at a time, each after the end of the one before. Returns their numbers.
  std::vector<GenerationId> Admit(int count) {
    std::vector<GenerationId> admitted;
    for (; count > 0 && !sessions_.empty(); --count) {
      TakeTurns(1, &sessions_);
      Session& session = *sessions_.front();
      session.was_admitted = true;
      session.client->served += session.prompt_length;
      admitted.push_back(session.id);
      sessions_.erase(sessions_.begin());
    }
    return admitted;
  }
  std::vector<GenerationId> Order(int max_batch) {
    TakeTurns(max_batch, &sessions_);
    std::vector<GenerationId> ids;
    for (const auto& session : sessions_) ids.push_back(session->id);
    return ids;
  }
  Session& at(int i) { return *sessions_[i]; }
  Clients& clients() { return clients_; }

 private:
  Clients clients_;
  GenerationId next_id_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;
};

// Row 212 of the bug catalogue.
TEST(TakeTurns, AManyfoldRequestDelaysOthersByOneTurn) {
  Queue queue;
  queue.Add("many", 30);
  queue.Add("one", 2);
  EXPECT_THAT(queue.Admit(6), ElementsAre(0, 30, 1, 31, 2, 3));
  queue.Add("late", 1);
  EXPECT_THAT(queue.Admit(2), ElementsAre(4, 32));
}

TEST(TakeTurns, OneClientKeepsItsOrder) {
  Queue queue;
  for (const int length : {30, 1, 500, 7, 7, 90}) queue.Add("", 1, length);
  EXPECT_THAT(queue.Order(4), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(queue.Admit(6), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TakeTurns, LongPromptsAndGeneratedTokensCount) {
  Queue queue;
  queue.Add("long", 10, 1000);
  queue.Add("short", 12, 100);
  EXPECT_THAT(queue.Admit(13), ElementsAre(0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 1, 20));
  queue.at(8).client->served = 9000;  // of "short": Session::Append counts tokens
  EXPECT_EQ(queue.Order(1).front(), 2);
}

TEST(TakeTurns, SessionsThatWereAdmittedStayFirst) {
  Queue queue;
  queue.Add("a", 3);
  queue.at(0).was_admitted = true;
  queue.at(0).client->served = 10;
  queue.Add("b", 2);
  EXPECT_THAT(queue.Order(1), ElementsAre(0, 1, 2, 3, 4));
  // "b" returned to the count of "a", which came first.
  EXPECT_THAT(queue.Order(3), ElementsAre(0, 1, 3, 2, 4));
}

TEST(Clients, AbsenceEarnsNoTurns) {
  Clients clients;
  const auto busy = clients.Get("busy");
  {
    const auto gone = clients.Get("gone");
    gone->served = 70;
  }
  busy->served = 50;
  EXPECT_EQ(clients.Get("new")->served, 50);
  EXPECT_EQ(clients.Get("gone")->served, 70);
  busy->served = 90;
  EXPECT_EQ(clients.Get("gone")->served, 90);
  EXPECT_EQ(clients.Get("busy"), busy);
  EXPECT_EQ(clients.size(), 1u);  // the others were forgotten
}

// ---- Constraints ----

// Allows every token. Each mask adds `cost` to a counted clock.
class CostlyState final : public ConstraintState {
 public:
  explicit CostlyState(absl::Duration cost) : cost_(cost) {}
  std::unique_ptr<ConstraintState> Clone() const override {
    return std::make_unique<CostlyState>(*this);
  }
  bool Accept(TokenId /*token*/) override { return true; }
  void Undo() override {}
  absl::Span<const uint32_t> Allowed() override {
    work_ += cost_;
    return mask_;
  }
  std::string Forced() override { return ""; }
  absl::Duration work() const override { return work_; }

 private:
  absl::Duration cost_;
  absl::Duration work_;
  std::vector<uint32_t> mask_ = {~uint32_t{0}};
};

class CostlyConstraint final : public TokenConstraint {
 public:
  explicit CostlyConstraint(absl::Duration cost) : cost_(cost) {}
  std::unique_ptr<ConstraintState> Begin() const override {
    return std::make_unique<CostlyState>(cost_);
  }

 private:
  absl::Duration cost_;
};

constexpr int kLength = 60;

Ask AskOf(absl::Duration cost) {
  Ask ask{.prompt = {3, 1, 4, 1, 5}, .max_tokens = kLength, .seed = 5};
  if (cost > absl::ZeroDuration()) {
    ask.sampling.constraint = std::make_shared<const CostlyConstraint>(cost);
  }
  return ask;
}

// Sessions of an engine that drafts `k` tokens a round.
struct Batch {
  Batch(const std::vector<absl::Duration>& costs, int k) : k(k) {
    for (const absl::Duration cost : costs) {
      sessions.push_back(Start(&models, &models.drafter, AskOf(cost)));
    }
  }
  // Runs a round. Returns the time that constraints took.
  absl::Duration Round() {
    std::vector<Session*> running;
    for (const auto& session : sessions) {
      if (!session->finished) running.push_back(session.get());
    }
    ShareConstraintTime(running);
    RoundPlan plan = PlanRound(running, 256, models.target_cache->num_available_pages());
    EXPECT_FALSE(plan.steps.empty());
    for (RoundStep& step : plan.steps) step.granted = std::min(k, step.session->DraftRoom());
    const absl::Duration before = Work();
    EXPECT_TRUE(models.Round(&models.drafter, plan.steps).ok());
    return Work() - before;
  }
  absl::Duration Work() const {
    absl::Duration sum;
    for (const auto& session : sessions) sum += session->history.constraint_work();
    return sum;
  }
  bool is_over() const {
    return std::all_of(sessions.begin(), sessions.end(), [](const auto& s) { return s->finished; });
  }
  std::vector<int> Lengths() const {
    std::vector<int> lengths;
    for (const auto& session : sessions) lengths.push_back(session->num_output());
    return lengths;
  }

  int k;
  RoundModels models;
  std::vector<std::unique_ptr<Session>> sessions;
};

// Row 213 of the bug catalogue: seven constraints would take 7 * 10 ms in each round.
TEST(ShareConstraintTime, SevenExpensiveConstraintsTakeTheTimeOfOne) {
  for (const int k : {0, 2}) {
    for (const absl::Duration cost : {absl::Milliseconds(10), absl::Seconds(1)}) {
      std::vector<absl::Duration> costs(9, cost);
      costs[0] = absl::ZeroDuration();
      costs[8] = absl::Microseconds(20);
      Batch batch(costs, k);
      const absl::Duration of_one = (2 * k + 1) * cost;  // by its draft, and when it is verified
      absl::Duration all;
      int num_rounds = 0;
      for (; !batch.sessions[0]->finished; ++num_rounds) {
        const absl::Duration taken = batch.Round();
        EXPECT_LE(taken, kMaxConstraintTime + of_one + 7 * k * cost);  // drafts are charged later
        all += taken;
      }
      // Each of the seven takes its first turn on credit.
      EXPECT_LE(all, num_rounds * kConstraintTime + 7 * of_one);
      EXPECT_GE(batch.sessions[8]->num_output(), kLength - 8 * (k + 1));  // waited 7 times at most
      while (!batch.is_over()) batch.Round();
      for (size_t i = 0; i < costs.size(); ++i) {
        ExpectSameCompletion(*batch.sessions[i], *Plain(AskOf(costs[i]), &batch.models));
      }
    }
  }
}

TEST(ShareConstraintTime, NoneSitsOutWithoutOthersThatRun) {
  Batch batch(std::vector<absl::Duration>(8, absl::Milliseconds(6)), 0);
  for (int round = 1; round <= kLength; ++round) {
    batch.Round();
    EXPECT_THAT(batch.Lengths(), Each(round));
  }
}

TEST(ShareConstraintTime, DebtsOfEndedRequestsArePaidByTheNext) {
  Clients clients;
  clients.Get("a")->constraint_debt = absl::Milliseconds(12);
  clients.Get("b");
  EXPECT_EQ(clients.size(), 2u);
  clients.PayDebts(absl::Milliseconds(5));
  EXPECT_EQ(clients.Get("a")->constraint_debt, absl::Milliseconds(7));
  clients.PayDebts(absl::Milliseconds(10));
  clients.Get("b");
  EXPECT_EQ(clients.size(), 1u);
}

}  // namespace
}  // namespace tandem
