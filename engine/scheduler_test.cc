#include "engine/scheduler.h"

#include <algorithm>
#include <climits>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/scheduler_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PlanRound, RunsTheOldestSessionsThatFitTheBatch) {
  World world(100, 4);
  Session* a = world.AddDecoding(5);
  Session* b = world.Add(7);
  Session* c = world.AddDecoding(3);
  world.AddDecoding(3);
  EXPECT_THAT(world.Plan(3).steps, ElementsAre(Step(a, 1, 0), Step(b, 7, 0), Step(c, 1, 0)));
  EXPECT_THAT(world.Plan(1).steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, IsEmptyWithoutSessions) {
  World world(4, 4);
  EXPECT_THAT(world.Plan().steps, IsEmpty());
  EXPECT_THAT(world.Plan().preempted, IsEmpty());
}

TEST(PlanRound, PromptsShareTheChunk) {
  World world(100, 4);
  Session* a = world.Add(10);
  Session* b = world.Add(10);
  Session* c = world.Add(10);
  EXPECT_THAT(world.Plan(8, 7).steps, ElementsAre(Step(a, 7, 0)));
  EXPECT_THAT(world.Plan(8, 10).steps, ElementsAre(Step(a, 10, 0)));
  EXPECT_THAT(world.Plan(8, 13).steps, ElementsAre(Step(a, 10, 0), Step(b, 3, 0)));
  EXPECT_THAT(world.Plan(8, 30).steps, ElementsAre(Step(a, 10, 0), Step(b, 10, 0), Step(c, 10, 0)));
}

TEST(PlanRound, DecodingNeverWaitsForPrompts) {
  World world(100, 4);
  Session* prompt = world.Add(50);
  Session* another = world.Add(50);
  Session* decoding = world.AddDecoding(5, 100, 2);
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(prompt, 5, 0), Step(decoding, 1, 2)));
  world.Read(prompt, 48);
  // A session with at most kMaxDecodeTokens unread tokens counts as decoding.
  EXPECT_THAT(world.Plan(8, 8).steps,
              ElementsAre(Step(prompt, 2, 0), Step(another, 3, 0), Step(decoding, 1, 2)));
}

// Prompts get the part of the chunk that decoding sessions leave, after drafts of a fixed length,
// and at least a quarter of the chunk however many sessions decode.
TEST(PlanRound, TheChunkLimitsAllRowsOfARound) {
  for (int num_decoding = 0; num_decoding <= 40; ++num_decoding) {
    for (const int k : {0, 3}) {
      World world(1000, 4);
      Session* prompt = world.Add(100);
      for (int i = 0; i < num_decoding; ++i) world.AddDecoding(5, 100, k);
      const int left = std::max(32 - num_decoding * (1 + k), 8);
      const std::vector<RoundStep> steps = world.Plan(64, 32).steps;
      ASSERT_EQ(static_cast<int>(steps.size()), num_decoding + 1);
      EXPECT_THAT(steps.front(), Step(prompt, left, 0));
      for (int i = 1; i <= num_decoding; ++i) EXPECT_EQ(steps[i].granted, k);
    }
  }
}

TEST(PlanRound, AChunkMayBeAsLargeAsAnInt) {
  World world(100, 4);
  Session* a = world.Add(10);
  Session* b = world.Add(20);
  EXPECT_THAT(world.Plan(8, INT_MAX).steps, ElementsAre(Step(a, 10, 0), Step(b, 20, 0)));
}

TEST(PlanRound, OnlyCompletingStepsDraft) {
  World world(100, 4);
  Session* a = world.Add(10, 100, 5);
  EXPECT_THAT(world.Plan(8, 9).steps, ElementsAre(Step(a, 9, 0)));
  EXPECT_THAT(world.Plan(8, 10).steps, ElementsAre(Step(a, 10, 5)));
}

TEST(PlanRound, DraftsLeaveRoomForTheTokenAfterThem) {
  for (int left = 1; left <= 8; ++left) {
    World world(100, 4);
    Session* a = world.Add(10, left, 5);
    EXPECT_EQ(a->DraftRoom(), left - 1);
    EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 10, std::min(5, left - 1))));
  }
}

TEST(PlanRound, DraftsOnlyWithADrafter) {
  World world(100, 4);
  Session* a = world.AddDecoding(10, 100, -1);
  a->draft_tokens = 4;
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, DropsADraftThatDoesNotFit) {
  World world(3, 4);
  Session* a = world.AddDecoding(11, 100, 4);  // its 3 pages hold 11 of 12 tokens
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, NoTokenWaitsForADraftOfAnotherSession) {
  World world(5, 4);
  Session* a = world.AddDecoding(8, 100, 4);  // 2 pages; its token or draft needs one more
  Session* b = world.AddDecoding(8, 100, 4);  // the same
  EXPECT_EQ(world.cache().num_available_pages(), 1);
  // One page is free for two tokens: a gets it, without a draft, and b waits.
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
  EXPECT_THAT(world.Plan().preempted, IsEmpty());

  World wider(6, 4);
  a = wider.AddDecoding(8, 100, 6);  // its draft would need both free pages
  b = wider.AddDecoding(8, 100, 6);
  EXPECT_THAT(wider.Plan().preempted, IsEmpty());
  EXPECT_THAT(wider.Plan().steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0)));
}

TEST(PlanRound, DraftsAreDroppedBeforeASessionIsPreempted) {
  World world(8, 4);
  Session* a = world.AddDecoding(8, 100, 7);
  Session* b = world.AddDecoding(8, 100, 7);
  Session* c = world.AddDecoding(6, 100, 7);
  EXPECT_EQ(world.cache().num_available_pages(), 2);
  const Planned plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0), Step(c, 1, 0)));
}

TEST(PlanRound, PreemptsTheYoungestOneAtATime) {
  World world(6, 4);
  Session* a = world.AddDecoding(8);
  Session* b = world.AddDecoding(8);
  Session* c = world.AddDecoding(8);
  const Planned plan = world.Plan();
  EXPECT_THAT(plan.preempted, ElementsAre(c));
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0)));
  EXPECT_FALSE(c->is_running);
  EXPECT_THAT(world.Plan().preempted, IsEmpty());
}

TEST(PlanRound, TheYoungestWaitsRatherThanPreemptingTheOldest) {
  World world(4, 4);
  Session* a = world.AddDecoding(6);
  world.AddDecoding(8);
  const Planned plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, AdmitsAPromptOnlyWhenAllOfItFits) {
  World world(5, 4);
  Session* a = world.AddDecoding(7);  // 2 pages, with room for its token
  Session* b = world.Add(13);         // needs 4 pages, 3 are free
  Session* c = world.Add(4);          // would fit, but must not overtake b
  EXPECT_THAT(world.Plan(8, 2).steps, ElementsAre(Step(a, 1, 0)));
  b->finished = true;
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0), Step(c, 4, 0)));
}

TEST(PlanRound, ShortPromptsDoNotWaitForALongOne) {
  World world(100, 4);
  Session* a = world.Add(30);
  Session* b = world.Add(40);
  Session* c = world.Add(3);
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 5, 0), Step(c, 3, 0)));
  EXPECT_THAT(world.Plan(8, 6).steps, ElementsAre(Step(a, 3, 0), Step(c, 3, 0)));
  EXPECT_THAT(world.Plan(8, 5).steps, ElementsAre(Step(a, 3, 0), Step(c, 2, 0)));
  EXPECT_THAT(world.Plan(8, 1).steps, ElementsAre(Step(a, 1, 0)));
  EXPECT_THAT(world.Plan(8, 40).steps, ElementsAre(Step(a, 30, 0), Step(b, 7, 0), Step(c, 3, 0)));
}

// A waiting session is not admitted into pages that a running prompt will still need.
TEST(PlanRound, KeepsPagesThatARunningPromptStillNeeds) {
  World world(10, 4);
  Session* a = world.Add(30);  // 8 pages
  Session* b = world.Add(12);  // 3 pages, 2 are free
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 8, 0)));
  world.Read(a, 8);
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 8, 0)));
  b->tokens.resize(8);  // needs 2 pages
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 4, 0), Step(b, 4, 0)));
}

// The bounds of docs/scheduling.md. L is the minimum number of rows for prompts, h its larger half,
// and R(p) the number of rounds that read prompt p at h rows per round.
// - The oldest prompt reads h rows in every round. So a prompt waits at most for the R of all older
//   prompts and its own R, whatever arrives after it.
// - The oldest leaves the remaining rows to the shortest. So a prompt with at most L - h unread
//   tokens, and fewer than all others, is read at once.
TEST(PlanRound, NoPromptWaitsLongerThanItsBound) {
  struct Arrival {
    Session* session;
    int rounds_left;
  };
  std::mt19937_64 random(1);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  int num_at_once = 0;
  for (int run = 0; run < 30; ++run) {
    SCOPED_TRACE(absl::StrCat("run ", run));
    const int chunk_tokens = uniform(1, 64);
    const int num_decoding = uniform(0, 20);
    // In addition to the chunk, at most two prompts read their last rows, at most two each.
    const int least = std::max(chunk_tokens - num_decoding - 4, MinForPrompts(chunk_tokens));
    const int half = (least + 1) / 2;
    World world(20000, 4);
    for (int i = 0; i < num_decoding; ++i) world.AddDecoding(3, 100000);
    std::deque<Arrival> waiting;
    for (int round = 0; round < 150; ++round) {
      // Twice as many tokens as can be read, so that the queue grows, mostly of short prompts.
      for (int i = uniform(0, 2); i > 0; --i) {
        const int length = uniform(0, 9) == 0 ? 10 * least : uniform(3, least + 3);
        int bound = (length + half - 1) / half;
        for (const Arrival& older : waiting) {
          bound += (older.session->num_pending() + half - 1) / half;
        }
        waiting.push_back({world.Add(length), bound});
      }
      int shortest = 1 << 30;
      int num_shortest = 0;
      for (const Arrival& arrival : waiting) {
        const int length = arrival.session->num_pending();
        num_shortest = length < shortest ? 1 : num_shortest + (length == shortest);
        shortest = std::min(shortest, length);
      }
      const Planned plan = world.Plan(100000, chunk_tokens);
      for (const RoundStep& step : plan.steps) {
        const int length = step.session->num_pending();
        if (length == shortest && num_shortest == 1 && length <= least - half) {
          EXPECT_TRUE(step.completes());
          num_at_once += waiting.size() > 1;
        }
        if (step.session->num_output() > 0) continue;
        world.Read(step.session, step.num_fed);
        step.session->finished = step.num_fed == length;
      }
      for (Arrival& arrival : waiting) ASSERT_GE(--arrival.rounds_left, 0);
      std::erase_if(waiting, [](const Arrival& arrival) { return arrival.session->finished; });
    }
  }
  EXPECT_GT(num_at_once, 100);
}

TEST(PlanRound, PrefixHitsAreAdmittedLikeOtherSessions) {
  World world(6, 4);
  std::vector<TokenId> prompt(17, 7);
  Session* first = world.Add(prompt, 100, -1);
  world.Read(first, 9);
  world.cache().Publish(first->tokens, &first->target_kv);
  prompt[16] = 8;
  Session* second = world.Add(prompt, 100, -1);
  EXPECT_EQ(world.cache().num_available_pages(), 3);
  // The first needs 2 more pages. The second needs 3 in addition to the 2 that both share, although
  // a chunk of it would fit into one page.
  EXPECT_THAT(world.Plan(8, 10).steps, ElementsAre(Step(first, 8, 0)));
  EXPECT_EQ(world.found_tokens(), 0);

  World wider(7, 4);
  first = wider.Add(prompt, 100, -1);
  wider.Read(first, 9);
  wider.cache().Publish(first->tokens, &first->target_kv);
  second = wider.Add(prompt, 100, -1);
  EXPECT_EQ(wider.cache().num_available_pages(), 4);
  EXPECT_THAT(wider.Plan(8, 6).steps, ElementsAre(Step(first, 6, 0)));
  EXPECT_EQ(wider.found_tokens(), 0);
  second->tokens.resize(16);  // needs 2 pages besides the 2 shared ones; the first needs 2
  EXPECT_THAT(wider.Plan(8, 10).steps, ElementsAre(Step(first, 8, 0), Step(second, 2, 0)));
  EXPECT_EQ(wider.found_tokens(), 8);
}

// Published pages that only a waiting session could use are available to older sessions.
TEST(PlanRound, AWaitingSessionHoldsNoPages) {
  World world(10, 4);
  Session* ended = world.Add(std::vector<TokenId>(17, 7), 100, -1);
  world.Read(ended, 16);
  world.cache().Publish(ended->tokens, &ended->target_kv);
  ended->finished = true;
  ended->target_kv = KvSequence();
  Session* a = world.AddDecoding(10);                                    // 3 pages
  Session* b = world.Add(std::vector<TokenId>(32, 9), 100, -1);          // 8 pages, 7 are free
  Session* c = world.Add(std::vector<TokenId>(ended->tokens), 100, -1);  // 4 are published
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
  EXPECT_EQ(world.cache().num_available_pages(), 7);
  b->tokens.resize(28);
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0), Step(b, 28, 0)));
  EXPECT_FALSE(c->is_running);
}

// Older sessions have ended, so that a waiting session is admitted while a younger one holds pages.
// The new oldest session must get these pages.
TEST(PlanRound, TheOldestGetsPagesThatYoungerSessionsHold) {
  World world(4, 4);
  Session* oldest = world.Add(12);
  Session* younger = world.AddDecoding(8);
  const Planned plan = world.Plan();
  EXPECT_THAT(plan.preempted, ElementsAre(younger));
  EXPECT_THAT(plan.steps, ElementsAre(Step(oldest, 12, 0)));
}

// Both read the same beginning. The first published it, and the second published what follows: the
// second continues with the first's pages, and its own copies are free.
TEST(PlanRound, TextThatTwoSessionsReadIsStoredOnce) {
  World world(5, 4);
  Session* first = world.Add(std::vector<TokenId>(9, 1), 100, -1);
  Session* second = world.Add(std::vector<TokenId>(13, 1), 100, -1);
  world.Read(first, 8);
  world.Read(second, 12);
  world.cache().Publish(first->tokens, &first->target_kv);
  world.cache().Publish(second->tokens, &second->target_kv);
  EXPECT_EQ(world.cache().num_free_pages(), 2);
  first->finished = true;
  first->target_kv.Truncate(0);
  EXPECT_EQ(world.cache().num_available_pages(), 2);
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(second, 1, 0)));
  world.CheckIntegrity();
}

TEST(PlanRound, IsEmptyOnlyWhenTheOldestCannotFitAlone) {
  World world(3, 4);
  world.Add(13);
  world.Add(4);
  const Planned plan = world.Plan();
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_THAT(plan.preempted, IsEmpty());
}

// ---- Random walks: the engine's loop without the models ----

struct WalkStats {
  int rounds = 0;
  int preemptions = 0;
  int drafted = 0;
  int hits = 0;
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : random_(seed), world_(MakeWorld()) {
    max_batch_ = Uniform(1, 6);
    chunk_tokens_ = Uniform(1, 20);
  }

  WalkStats Run() {
    constexpr int kSessions = 12;
    int submitted = 0;
    // The oldest session advances in every round, by a token or a chunk.
    for (int round = 0; round < 12 * 40 * 3; ++round) {
      if (submitted < kSessions && (Uniform(0, 2) == 0 || world_.unfinished().empty())) {
        Submit();
        ++submitted;
      }
      if (!world_.unfinished().empty()) Round();
      if (testing::Test::HasFatalFailure()) return stats_;
      stats_.hits = world_.found_tokens();
      if (submitted == kSessions && world_.unfinished().empty()) return stats_;
    }
    ADD_FAILURE() << world_.unfinished().size() << " sessions were starved";
    return stats_;
  }

 private:
  int Uniform(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  World MakeWorld() {
    page_size_ = Uniform(1, 5);
    const int num_pages = Uniform(44 / page_size_, 120 / page_size_);  // 40 tokens always fit
    return World(num_pages, page_size_);
  }

  void Submit() {
    // Few distinct tokens, so that prompts share beginnings.
    std::vector<TokenId> prompt;
    const int length = Uniform(1, 20);
    for (int i = 0; i < length; ++i) prompt.push_back(Uniform(0, 9) == 0);
    const int max_tokens = Uniform(1, 20);
    world_.Add(prompt, max_tokens, Uniform(-1, 8));
  }

  void Round() {
    const std::vector<Session*> sessions = world_.unfinished();
    const int num_let_in = world_.num_let_in();
    const Planned plan = world_.Plan(max_batch_, chunk_tokens_);
    // No session is preempted to make room for one that was just admitted.
    EXPECT_TRUE(plan.preempted.empty() || world_.num_let_in() == num_let_in);
    stats_.preemptions += static_cast<int>(plan.preempted.size());
    CheckRunning(sessions);
    CheckPlan(sessions, plan.steps);
    // The pass: all pages must be available.
    for (const RoundStep& step : plan.steps) {
      ASSERT_TRUE(step.session->target_kv.Extend(step.num_fed + step.granted).ok());
    }
    ++stats_.rounds;
    for (const RoundStep& step : plan.steps) Commit(step);
    world_.CheckIntegrity();
  }

  // The oldest sessions run, and waiting sessions hold no pages.
  void CheckRunning(const std::vector<Session*>& sessions) {
    EXPECT_TRUE(sessions.front()->is_running);
    int num_running = 0;
    for (size_t i = 0; i < sessions.size(); ++i) {
      num_running += sessions[i]->is_running;
      EXPECT_TRUE(i == 0 || sessions[i - 1]->is_running || !sessions[i]->is_running);
      EXPECT_TRUE(sessions[i]->is_running || sessions[i]->target_kv.length() == 0);
    }
    EXPECT_LE(num_running, max_batch_);
  }

  void CheckPlan(const std::vector<Session*>& sessions, const std::vector<RoundStep>& steps) {
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps.front().session, sessions.front());
    int chunk = 0;
    int num_decoding = 0;
    int64_t pages_for_drafts = 0;
    auto place = sessions.begin();
    for (const RoundStep& step : steps) {
      place = std::find(place, sessions.end(), step.session);  // in order, each at most once
      ASSERT_NE(place, sessions.end());
      ++place;
      const Session& s = *step.session;
      EXPECT_GE(step.num_fed, 1);
      EXPECT_LE(step.num_fed, s.num_pending());
      (s.num_pending() > kMaxDecodeTokens ? chunk : num_decoding) += step.num_fed;
      EXPECT_LE(step.granted, s.DraftRoom());
      if (step.granted > 0) {
        EXPECT_TRUE(step.completes() && s.draft_state != nullptr);
        pages_for_drafts += s.target_kv.PagesToExtend(step.num_fed + step.granted) -
                            s.target_kv.PagesToExtend(step.num_fed);
      }
    }
    EXPECT_LE(chunk, std::max(chunk_tokens_ - num_decoding, MinForPrompts(chunk_tokens_)));
    // A decoding session waits only for pages; if one waits, no draft takes pages.
    for (const Session* s : sessions) {
      if (!s->is_running || s->num_output() == 0 || s->num_pending() > 1) continue;
      const bool runs = std::any_of(steps.begin(), steps.end(),
                                    [&](const RoundStep& step) { return step.session == s; });
      EXPECT_TRUE(runs || pages_for_drafts == 0);
    }
  }

  void Commit(const RoundStep& step) {
    Session& s = *step.session;
    const bool completed = s.target_kv.length() >= s.length();
    if (completed) {
      stats_.drafted += step.granted;
      for (int emitted = Uniform(1, step.granted + 1); emitted > 0; --emitted) {
        s.tokens.push_back(Uniform(0, 9) == 0);
      }
      ASSERT_LE(s.length(), s.max_length);
      s.finished = s.length() == s.max_length || Uniform(0, 30) == 0;
    }
    s.target_kv.Truncate(std::min(s.target_kv.length(), s.num_cacheable()));
    if (Uniform(0, 1) == 0) world_.cache().Publish(s.tokens, &s.target_kv);
    if (s.finished) s.target_kv.Truncate(0);
  }

  std::mt19937_64 random_;
  int page_size_ = 0;
  World world_;
  int max_batch_ = 0;
  int chunk_tokens_ = 0;
  WalkStats stats_;
};

TEST(PlanRound, KeepsItsPromisesOnRandomWalks) {
  WalkStats total;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const WalkStats stats = Walk(seed).Run();
    if (HasFailure()) return;
    total.rounds += stats.rounds;
    total.preemptions += stats.preemptions;
    total.drafted += stats.drafted;
    total.hits += stats.hits;
  }
  // The walks covered the interesting cases.
  EXPECT_GT(total.preemptions, 100);
  EXPECT_GT(total.drafted, 10000);
  EXPECT_GT(total.hits, 1000);
  EXPECT_GT(total.rounds, 10000);
}

}  // namespace
}  // namespace tandem
