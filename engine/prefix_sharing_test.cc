// If several sessions with the same beginning arrive together, only one of them reads it.
#include <numeric>
#include <vector>

#include "engine/scheduler_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::ElementsAre;

// `count` consecutive token ids from `first` on, which no other range contains.
std::vector<TokenId> TokensFrom(int first, int count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The engine's rounds: looks for prefix hits before each round, reads, and publishes. NumRead
// returns the number of tokens read until all sessions have read their prompts.
class Reading {
 public:
  explicit Reading(World* world) : world_(world) {}

  int NumRead(absl::Span<Session* const> sessions) {
    int num_read = 0;
    for (Planned round = Plan(); !round.steps.empty(); round = Plan()) {
      for (const RoundStep& step : round.steps) {
        num_read += step.num_fed;
        world_->Read(step.session, step.num_fed);
        step.session->finished = step.session->num_pending() == 0;
      }
      for (const RoundStep& step : round.steps) {
        world_->cache().Publish(step.session->tokens, &step.session->target_kv);
      }
      world_->CheckIntegrity();
    }
    for (const Session* session : sessions) EXPECT_TRUE(session->finished);
    return num_read;
  }

  Planned Plan() {
    Planned plan = world_->Plan(/*max_batch=*/100, /*chunk_tokens=*/256, /*shares_prefixes=*/true);
    while (ReplanAfterPrefixHits(plan.steps)) plan = world_->Plan(100, 256, true);
    return plan;
  }

 private:
  bool ReplanAfterPrefixHits(absl::Span<const RoundStep> steps) {
    bool found = false;
    for (const RoundStep& step : steps) {
      KvSequence longer = world_->cache().NewSequenceWithPrefix(step.session->tokens);
      if (longer.length() <= step.session->target_kv.length()) continue;
      step.session->target_kv = std::move(longer);
      found = true;
    }
    return found;
  }

  World* world_;
};

// Row 85 of the bug catalogue: the first session reads everything, the others only the tokens that
// are not in a full page.
TEST(PrefixSharing, EqualPromptsAreReadOnce) {
  constexpr int kPageSize = 16;
  for (const int count : {2, 8, 40}) {
    for (const int length : {17, 40, 162, 256, 257, 802, 2000}) {
      World world(4000, kPageSize);
      std::vector<Session*> sessions;
      for (int i = 0; i < count; ++i) sessions.push_back(world.Add(TokensFrom(0, length), 100, -1));
      const int rest = (length - 1) % kPageSize + 1;
      EXPECT_EQ(Reading(&world).NumRead(sessions), length + (count - 1) * rest)
          << count << " of " << length;
    }
  }
}

TEST(PrefixSharing, ALongCommonBeginningIsReadOnce) {
  World world(4000, 16);
  std::vector<Session*> sessions;
  for (int i = 0; i < 8; ++i) {
    sessions.push_back(
        world.Add(TokensFrom(0, 800) + TokensFrom(10000 * (i + 1), 10 + i), 100, -1));
  }
  EXPECT_EQ(Reading(&world).NumRead(sessions), 800 + 8 * 10 + 28);
}

TEST(PrefixSharing, DoesNotWaitForAShortPrefix) {
  World world(4000, 16);
  Session* a = world.Add(TokensFrom(0, 16) + TokensFrom(1000, 30), 100, -1);
  Session* b = world.Add(TokensFrom(0, 16) + TokensFrom(2000, 30), 100, -1);
  EXPECT_THAT(Reading(&world).Plan().steps, ElementsAre(Step(a, 46, 0), Step(b, 46, 0)));
}

TEST(PrefixSharing, DoesNotWaitForAPrefixThatIsAlreadyRead) {
  World world(4000, 16);
  Session* a = world.Add(TokensFrom(0, 64) + TokensFrom(1000, 200), 100, -1);
  Session* b = world.Add(TokensFrom(0, 64) + TokensFrom(2000, 60), 100, -1);
  world.Read(a, 192);
  world.cache().Publish(a->tokens, &a->target_kv);
  EXPECT_THAT(Reading(&world).Plan().steps, ElementsAre(Step(a, 72, 0), Step(b, 60, 0)));
}

// Rows whose log-probabilities are reported must be computed.
TEST(PrefixSharing, DoesNotWaitIfItCannotUseThePrefix) {
  World world(4000, 16);
  Session* a = world.Add(TokensFrom(0, 100), 100, -1);
  Session* b = world.Add(TokensFrom(0, 100), 100, -1);
  EXPECT_THAT(world.Plan(8, 256, true).steps, ElementsAre(Step(a, 100, 0)));
  b->prompt_logprobs.num_top = 0;
  EXPECT_THAT(world.Plan(8, 256, true).steps, ElementsAre(Step(a, 100, 0), Step(b, 100, 0)));
  b->prompt_logprobs.num_top = -1;
  EXPECT_THAT(world.Plan(8, 256, false).steps, ElementsAre(Step(a, 100, 0), Step(b, 100, 0)));
}

TEST(PrefixSharing, AWaitingSessionReadsWhenTheReaderIsGone) {
  World world(4000, 16);
  Session* a = world.Add(TokensFrom(0, 600), 100, -1);
  Session* b = world.Add(TokensFrom(0, 600), 100, -1);
  EXPECT_THAT(world.Plan(8, 256, true).steps, ElementsAre(Step(a, 256, 0)));
  a->finished = true;
  EXPECT_THAT(world.Plan(8, 256, true).steps, ElementsAre(Step(b, 256, 0)));
}

}  // namespace
}  // namespace tandem
