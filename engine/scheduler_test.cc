#include "engine/scheduler.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Sessions over a cache of page tables alone.
class World {
 public:
  World(int num_pages, int page_size)
      : cache_(*PagedKvCache::Create(
            nullptr, {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .page_size = page_size},
            num_pages)) {}

  // A new session that speculates with `draft_tokens`; without a drafter if negative.
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
    Admit(sessions_.back().get());
    return sessions_.back().get();
  }
  void Admit(Session* session) {
    session->target_kv = cache_->NewSequenceWithPrefix(session->tokens);
    session->found_tokens = session->target_kv.length();
  }
  Session* Add(int prompt_length, int max_tokens = 100, int draft_tokens = -1) {
    return Add(std::vector<TokenId>(prompt_length, 1), max_tokens, draft_tokens);
  }
  // One that has read its prompt and chosen a token.
  Session* AddDecoding(int prompt_length, int max_tokens = 100, int draft_tokens = -1) {
    Session* session = Add(prompt_length, max_tokens, draft_tokens);
    Read(session, prompt_length);
    session->tokens.push_back(1);
    return session;
  }
  void Read(Session* session, int count) { ASSERT_TRUE(session->target_kv.Extend(count).ok()); }
  void Preempt(Session* session) {
    session->target_kv.Truncate(0);
    session->found_tokens = 0;
  }

  RoundPlan Plan(int max_batch = 8, int chunk_tokens = 256) {
    return PlanRound(unfinished(),
                     {.max_batch = max_batch,
                      .chunk_tokens = chunk_tokens,
                      .free_pages = cache_->num_available_pages()},
                     &policy_);
  }

  std::vector<Session*> unfinished() const {
    std::vector<Session*> sessions;
    for (const auto& session : sessions_) {
      if (!session->finished) sessions.push_back(session.get());
    }
    return sessions;
  }
  PagedKvCache& cache() { return *cache_; }
  void CheckIntegrity() const {
    std::vector<const KvSequence*> sequences;
    for (const auto& session : sessions_) sequences.push_back(&session->target_kv);
    const absl::Status status = cache_->CheckIntegrity(sequences);
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  SpeculationPolicy policy_;
  std::unique_ptr<PagedKvCache> cache_;
  std::deque<std::unique_ptr<Session>> sessions_;
};

auto Step(const Session* session, int num_fed, int draft_tokens) {
  return testing::AllOf(testing::Field("session", &RoundStep::session, session),
                        testing::Field("num_fed", &RoundStep::num_fed, num_fed),
                        testing::Field("draft_tokens", &RoundStep::draft_tokens, draft_tokens));
}

TEST(PlanRound, TakesTheOldestThatFitTheBatch) {
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
  // The rest of a prompt no longer than a verified row counts as decoding.
  EXPECT_THAT(world.Plan(8, 8).steps,
              ElementsAre(Step(prompt, 2, 0), Step(another, 3, 0), Step(decoding, 1, 2)));
}

// Prompts take what those who decode leave of the chunk, drafts of a fixed length included, and a
// quarter of it however many those are.
TEST(PlanRound, TheChunkIsTheRowsOfARound) {
  for (int num_decoding = 0; num_decoding <= 40; ++num_decoding) {
    for (const int k : {0, 3}) {
      World world(1000, 4);
      Session* prompt = world.Add(100);
      for (int i = 0; i < num_decoding; ++i) world.AddDecoding(5, 100, k);
      const int left = std::max(32 - num_decoding * (1 + k), 8);
      const std::vector<RoundStep> steps = world.Plan(64, 32).steps;
      ASSERT_EQ(static_cast<int>(steps.size()), num_decoding + 1);
      EXPECT_THAT(steps.front(), Step(prompt, left, 0));
      for (int i = 1; i <= num_decoding; ++i) EXPECT_EQ(steps[i].draft_tokens, k);
    }
  }
}

TEST(PlanRound, OnlyStepsThatCompleteSpeculate) {
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

TEST(PlanRound, SpeculatesOnlyWithADrafter) {
  World world(100, 4);
  Session* a = world.AddDecoding(10, 100, -1);
  a->draft_tokens = 4;
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, DropsADraftThatDoesNotFit) {
  World world(3, 4);
  Session* a = world.AddDecoding(11, 100, 4);  // holds 11 of 12 places
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, NobodysTokenWaitsForAnothersDraft) {
  World world(5, 4);
  Session* a = world.AddDecoding(8, 100, 4);  // 2 pages; one more for its draft or its token
  Session* b = world.AddDecoding(8, 100, 4);  // likewise
  EXPECT_EQ(world.cache().num_available_pages(), 1);
  // There is one page for two tokens: a takes it, without a draft, and b waits.
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(a, 1, 0)));
  EXPECT_THAT(world.Plan().preempted, IsEmpty());

  World wider(6, 4);
  a = wider.AddDecoding(8, 100, 6);  // its draft takes both pages that are left
  b = wider.AddDecoding(8, 100, 6);
  EXPECT_THAT(wider.Plan().preempted, IsEmpty());
  EXPECT_THAT(wider.Plan().steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0)));
}

TEST(PlanRound, DraftsGoBeforeAnybodyIsPreempted) {
  World world(8, 4);
  Session* a = world.AddDecoding(8, 100, 7);
  Session* b = world.AddDecoding(8, 100, 7);
  Session* c = world.AddDecoding(6, 100, 7);
  EXPECT_EQ(world.cache().num_available_pages(), 2);
  const RoundPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0), Step(c, 1, 0)));
}

TEST(PlanRound, PreemptsTheYoungestOneAtATime) {
  World world(6, 4);
  Session* a = world.AddDecoding(8);
  Session* b = world.AddDecoding(8);
  Session* c = world.AddDecoding(8);
  RoundPlan plan = world.Plan();
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_THAT(plan.preempted, ElementsAre(c));
  world.Preempt(c);
  plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0), Step(b, 1, 0)));
}

TEST(PlanRound, TheYoungestWaitsRatherThanPreemptsTheOldest) {
  World world(4, 4);
  Session* a = world.AddDecoding(6);
  world.AddDecoding(8);
  const RoundPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(plan.steps, ElementsAre(Step(a, 1, 0)));
}

TEST(PlanRound, LetsAPromptInOnlyWhenAllOfItFits) {
  World world(5, 4);
  Session* a = world.AddDecoding(7);  // 2 pages, and a place left for its token
  Session* b = world.Add(13);         // needs 4 of the 3
  Session* c = world.Add(4);          // would fit, but nobody overtakes
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

// Of what prompts still lack the next to be let in is not given pages.
TEST(PlanRound, LetsNobodyIntoPagesThatAPromptHasYetToRead) {
  World world(10, 4);
  Session* a = world.Add(30);  // 8 pages
  Session* b = world.Add(12);  // 3 of the 2 left
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 8, 0)));
  world.Read(a, 8);
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 8, 0)));
  b->tokens.resize(8);  // now 2
  EXPECT_THAT(world.Plan(8, 8).steps, ElementsAre(Step(a, 4, 0), Step(b, 4, 0)));
}

// The bounds of docs/scheduling.md. With L the least left for prompts, h its larger half, and R(p)
// the rounds in which h rows a round read p:
// - the oldest prompt reads h in every round, so a prompt waits for at most the R of those that
//   were there before it, whatever comes behind it, and its own R;
// - what the oldest leaves goes to the shortest, so who wants no more than L - h, and less than
//   all others, is read at once.
TEST(PlanRound, NobodyWaitsLongerThanItsBound) {
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
    // The rests of two prompts at most, of two tokens at most, are read beside the chunk.
    const int least = std::max(chunk_tokens - num_decoding - 4, LeastForPrompts(chunk_tokens));
    const int half = (least + 1) / 2;
    World world(20000, 4);
    for (int i = 0; i < num_decoding; ++i) world.AddDecoding(3, 100000);
    std::deque<Arrival> waiting;
    for (int round = 0; round < 150; ++round) {
      // Twice as much as can be read, so that the queue grows, and mostly of short ones.
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
      for (const RoundStep& step : world.Plan(100000, chunk_tokens).steps) {
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

TEST(PlanRound, PrefixHitsAreLetInLikeOthers) {
  World world(6, 4);
  std::vector<TokenId> prompt(17, 7);
  Session* first = world.Add(prompt, 100, -1);
  world.Read(first, 9);
  world.cache().Publish(first->tokens, first->target_kv);
  prompt[16] = 8;
  Session* second = world.Add(prompt, 100, -1);
  EXPECT_EQ(second->target_kv.length(), 8);
  EXPECT_EQ(world.cache().num_available_pages(), 3);
  // The first needs 2 pages more, the second 3 of its own; for a chunk of it one would do.
  EXPECT_THAT(world.Plan(8, 10).steps, ElementsAre(Step(first, 8, 0)));
}

// Older sessions have ended and left their place to one that waited, while a younger one holds
// pages: the new oldest must not fail for that.
TEST(PlanRound, TheOldestGetsPagesThatYoungerOnesHold) {
  World world(4, 4);
  Session* oldest = world.Add(12);
  Session* younger = world.AddDecoding(8);
  EXPECT_THAT(world.Plan().preempted, ElementsAre(younger));
  world.Preempt(younger);
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(oldest, 12, 0)));
}

// It read the same beginning as another that published it, and published what follows: its last
// page holds the other's in place, which nobody uses.
TEST(PlanRound, IsEmptyBesidePublishedPagesThatCannotLeave) {
  World world(5, 4);
  Session* first = world.Add(std::vector<TokenId>(9, 1), 100, -1);
  Session* second = world.Add(std::vector<TokenId>(13, 1), 100, -1);
  world.Read(first, 8);
  world.Read(second, 12);
  world.cache().Publish(first->tokens, first->target_kv);
  world.cache().Publish(second->tokens, second->target_kv);
  first->finished = true;
  first->target_kv.Truncate(0);
  EXPECT_EQ(world.cache().num_available_pages(), 0);
  RoundPlan plan = world.Plan();
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_THAT(plan.preempted, IsEmpty());
  world.cache().ClearPrefixes();
  EXPECT_THAT(world.Plan().steps, ElementsAre(Step(second, 1, 0)));
  world.CheckIntegrity();
}

TEST(PlanRound, IsEmptyOnlyWhenTheOldestCannotFitAlone) {
  World world(3, 4);
  world.Add(13);
  world.Add(4);
  const RoundPlan plan = world.Plan();
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
    // Every round the oldest advances by a token or a chunk's worth.
    for (int round = 0; round < 12 * 40 * 3; ++round) {
      if (submitted < kSessions && (Uniform(0, 2) == 0 || world_.unfinished().empty())) {
        Submit();
        ++submitted;
      }
      if (!world_.unfinished().empty()) Round();
      if (testing::Test::HasFatalFailure()) return stats_;
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
    // Few kinds of tokens, so that prompts share beginnings.
    std::vector<TokenId> prompt;
    const int length = Uniform(1, 20);
    for (int i = 0; i < length; ++i) prompt.push_back(Uniform(0, 9) == 0);
    const int max_tokens = Uniform(1, 20);
    Session* session = world_.Add(prompt, max_tokens, Uniform(-1, 8));
    world_.Preempt(session);  // until it is admitted
  }

  void Admit() {
    const std::vector<Session*> sessions = world_.unfinished();
    for (int i = 0; i < std::min<int>(max_batch_, sessions.size()); ++i) {
      if (sessions[i]->is_admitted) continue;
      sessions[i]->is_admitted = true;
      world_.Admit(sessions[i]);
      stats_.hits += sessions[i]->target_kv.length();
    }
  }

  void Round() {
    Admit();
    const std::vector<Session*> sessions = world_.unfinished();
    RoundPlan plan = world_.Plan(max_batch_, chunk_tokens_);
    for (; !plan.preempted.empty(); plan = world_.Plan(max_batch_, chunk_tokens_)) {
      CheckPreemption(sessions, plan);
      world_.Preempt(plan.preempted.front());
      ++stats_.preemptions;
    }
    if (plan.steps.empty()) {
      // Published pages that no sequence uses stay if one of them uses a page that follows.
      world_.cache().ClearPrefixes();
      plan = world_.Plan(max_batch_, chunk_tokens_);
    }
    CheckPlan(sessions, plan);
    // The pass: all pages are there.
    for (const RoundStep& step : plan.steps) {
      ASSERT_TRUE(step.session->target_kv.Extend(step.num_fed + step.draft_tokens).ok());
    }
    ++stats_.rounds;
    for (const RoundStep& step : plan.steps) Commit(step);
    world_.CheckIntegrity();
  }

  void CheckPreemption(const std::vector<Session*>& sessions, const RoundPlan& plan) {
    ASSERT_THAT(plan.steps, IsEmpty());
    ASSERT_EQ(plan.preempted.size(), 1u);
    const Session* preempted = plan.preempted.front();
    EXPECT_NE(preempted, sessions.front());
    EXPECT_GT(preempted->target_kv.length(), 0);
    bool is_younger = false;
    for (const Session* session : sessions) {
      EXPECT_TRUE(!is_younger || session->target_kv.length() == 0);
      is_younger = is_younger || session == preempted;
    }
  }

  void CheckPlan(const std::vector<Session*>& sessions, const RoundPlan& plan) {
    ASSERT_FALSE(plan.steps.empty());
    EXPECT_EQ(plan.steps.front().session, sessions.front());
    EXPECT_LE(static_cast<int>(plan.steps.size()), max_batch_);
    int chunk = 0;
    int num_decoding = 0;
    bool anybody_drafts = false;
    auto place = sessions.begin();
    for (const RoundStep& step : plan.steps) {
      place = std::find(place, sessions.end(), step.session);  // in order, nobody twice
      ASSERT_NE(place, sessions.end());
      ++place;
      const Session& s = *step.session;
      EXPECT_GE(step.num_fed, 1);
      EXPECT_LE(step.num_fed, s.num_pending());
      (s.num_pending() > kMostWithoutChunk ? chunk : num_decoding) += step.num_fed;
      EXPECT_LE(step.draft_tokens, s.DraftRoom());
      if (step.draft_tokens > 0) {
        EXPECT_TRUE(step.completes() && s.draft_state != nullptr);
        anybody_drafts = true;
      }
    }
    EXPECT_LE(chunk, std::max(chunk_tokens_ - num_decoding, LeastForPrompts(chunk_tokens_)));
    // Who decodes waits for pages only, and then nobody drafts.
    for (int i = 0; i < std::min<int>(max_batch_, sessions.size()); ++i) {
      const Session& s = *sessions[i];
      if (s.num_output() == 0 || s.num_pending() > 1) continue;
      const bool runs = std::any_of(plan.steps.begin(), plan.steps.end(),
                                    [&](const RoundStep& step) { return step.session == &s; });
      EXPECT_TRUE(runs || !anybody_drafts);
    }
  }

  void Commit(const RoundStep& step) {
    Session& s = *step.session;
    const bool completed = s.target_kv.length() >= s.length();
    if (completed) {
      stats_.drafted += step.draft_tokens;
      for (int emitted = Uniform(1, step.draft_tokens + 1); emitted > 0; --emitted) {
        s.tokens.push_back(Uniform(0, 9) == 0);
      }
      ASSERT_LE(s.length(), s.max_length);
      s.finished = s.length() == s.max_length || Uniform(0, 30) == 0;
    }
    s.target_kv.Truncate(std::min(s.target_kv.length(), s.num_cacheable()));
    if (completed && Uniform(0, 1) == 0) world_.cache().Publish(s.tokens, s.target_kv);
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
  // The walks went where it is interesting.
  EXPECT_GT(total.preemptions, 100);
  EXPECT_GT(total.drafted, 10000);
  EXPECT_GT(total.hits, 1000);
  EXPECT_GT(total.rounds, 10000);
}

}  // namespace
}  // namespace tandem
