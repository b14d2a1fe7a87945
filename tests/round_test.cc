// Rounds of speculation compared with plain decoding of the same requests: with any drafts,
// batches, evictions and failed passes, the tokens are the same wherever they must be.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// ---- Every drafter ----

// Returns drafters from perfect to useless. `expected` is the text of plain decoding.
struct NamedDrafter {
  std::string name;
  FunctionDrafter::Function function;
};
std::vector<NamedDrafter> FunctionDrafters(const Tokens* expected) {
  const auto suggest = [expected](auto choose) {
    return [expected, choose](const DraftRequest& request, Proposal* proposal) {
      for (int i = 0; i < request.granted; ++i) {
        const size_t at = request.context.size() + i;
        const TokenId right = at < expected->size() ? (*expected)[at] : 0;
        Suggest(choose(right, i), proposal);
      }
    };
  };
  return {
      {"oracle", suggest([](TokenId right, int) { return right; })},
      {"always wrong", suggest([](TokenId right, int) { return (right + 1) % kSmallVocab; })},
      {"right, then wrong",
       suggest([](TokenId right, int i) { return i < 2 ? right : (right + 3) % kSmallVocab; })},
      {"one token repeatedly", suggest([](TokenId, int) { return 4; })},
      {"nothing", [](const DraftRequest&, Proposal*) {}},
      {"one right token", suggest([](TokenId right, int i) { return i == 0 ? right : 6; })},
  };
}

TEST(RunRound, ExactMatchEqualsPlainDecodingForEveryDrafter) {
  std::mt19937_64 random(1);
  int num_cases = 0;
  for (const SamplingParams& sampling : AllSampling()) {
    const Ask ask{.prompt = RandomTokens(random, kSmallVocab, 5),
                  .sampling = sampling,
                  .seed = random(),
                  .logprobs = {.num_top = 2, .processed = ++num_cases % 2 == 0}};
    RoundModels models;
    const auto plain = Plain(ask, &models);
    ASSERT_EQ(plain->num_output(), ask.max_tokens);
    const Tokens expected = plain->tokens;
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (NamedDrafter& named : FunctionDrafters(&expected)) {
      drafters.push_back(std::make_unique<FunctionDrafter>(std::move(named.function)));
    }
    drafters.push_back(
        std::make_unique<ModelDrafter>(&models.draft, models.draft_cache.get(), kSmallVocab, 8));
    for (const auto& drafter : drafters) {
      for (int k = 0; k <= 8; ++k) {
        const auto s = Start(&models, drafter.get(), ask);
        while (!s->finished) ASSERT_TRUE(models.Round(drafter.get(), s.get(), k).ok());
        ExpectSameCompletion(*s, *plain);
        // The counts of the rounds agree.
        EXPECT_EQ(s->completion.stats.emitted, s->num_output());
        EXPECT_LE(s->completion.stats.accepted, s->completion.stats.proposed);
        EXPECT_EQ(s->completion.provenance.size(), s->completion.token_ids.size());
      }
    }
  }
}

// At temperature 0 every rule equals plain decoding, and all tokens of an oracle are accepted.
TEST(RunRound, EveryRuleEqualsPlainDecodingAtTemperatureZero) {
  std::mt19937_64 random(2);
  for (const AcceptanceRule rule : kAllRules) {
    for (const SamplingParams& sampling :
         {SamplingParams{.temperature = 0.0f},
          SamplingParams{.temperature = 0.0f, .frequency_penalty = 0.7f}}) {
      const Ask ask{.prompt = RandomTokens(random, kSmallVocab, 5), .sampling = sampling};
      RoundModels models;
      const auto plain = Plain(ask, &models);
      for (int k = 0; k <= 8; ++k) {
        const auto s = Start(&models, &models.drafter, ask, rule);
        while (!s->finished) ASSERT_TRUE(models.Round(&models.drafter, s.get(), k).ok());
        ExpectSameCompletion(*s, *plain);
      }
    }
  }
}

// The draft is the target, so all of its tokens are accepted for thousands of tokens, unless its
// cache misses a token or holds a wrong one.
TEST(RunRound, SelfDraftsAreFullyAccepted) {
  for (const AcceptanceRule rule : kAllRules) {
    for (const SamplingParams& sampling :
         {SamplingParams(), SamplingParams{.temperature = 0.7f, .top_p = 0.9f},
          SamplingParams{.presence_penalty = 0.5f}}) {
      RoundModels models({.draft = {}, .num_pages = 2000});
      const auto s = Start(
          &models, &models.drafter,
          {.prompt = {3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 0}, .max_tokens = 1000, .sampling = sampling},
          rule);
      std::mt19937_64 random(3);
      while (!s->finished) {
        if (random() % 30 == 0) models.drafter.Evict(s->draft_state.get());
        const int k = static_cast<int>(random() % 9);
        ASSERT_TRUE(models.Round(&models.drafter, s.get(), k).ok());
        models.draft.passes().clear();
        models.target.passes().clear();
      }
      EXPECT_GT(s->completion.stats.proposed, 600);
      EXPECT_EQ(s->completion.stats.accepted, s->completion.stats.proposed) << NameOf(rule);
    }
  }
}

// ---- Disturbances ----

// Disturbances of a batch between and during rounds.
struct Disturbances {
  bool failing = false;
  bool preempting = false;
  bool evicting = false;
  bool chunking = false;
};

void ExpectCachesHoldCommittedTokens(RoundModels* models,
                                     const std::vector<std::unique_ptr<Session>>& sessions) {
  std::vector<const KvSequence*> sequences;
  for (const auto& s : sessions) {
    sequences.push_back(&s->target_kv);
    ASSERT_LE(s->target_kv.length(), s->num_cacheable());
    const Tokens cached = FakeModel::Contents(s->target_kv);
    ASSERT_TRUE(std::equal(cached.begin(), cached.end(), s->tokens.begin()));
  }
  const absl::Status status = models->target_cache->CheckIntegrity(sequences);
  ASSERT_TRUE(status.ok()) << status;
}

// Runs all sessions to their ends. Each round has a random part of them in random order.
void RunDisturbed(RoundModels* models, Drafter* drafter, const Disturbances& disturbances,
                  std::mt19937_64& random, std::vector<std::unique_ptr<Session>>* sessions) {
  models->target.options().fail_every = disturbances.failing ? 4 : 0;
  models->draft.options().fail_every = disturbances.failing ? 11 : 0;
  int num_failures = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<RoundStep> steps;
    for (const auto& s : *sessions) {
      if (disturbances.preempting && random() % 25 == 0) {
        s->target_kv.Truncate(0);
        drafter->Evict(s->draft_state.get());
      }
      if (disturbances.evicting && random() % 10 == 0) {
        drafter->Rollback(s->draft_state.get(), static_cast<int>(random() % s->tokens.size()));
      }
      if (s->finished || random() % 3 == 0) continue;
      RoundStep step{.session = s.get(), .num_fed = s->num_pending(), .granted = 0};
      if (disturbances.chunking && random() % 2 == 0) {
        step.num_fed = 1 + static_cast<int>(random() % step.num_fed);
      }
      if (step.completes()) {
        step.granted = std::min(static_cast<int>(random() % 9), s->DraftRoom());
      }
      steps.push_back(step);
    }
    if (std::all_of(sessions->begin(), sessions->end(),
                    [](const auto& s) { return s->finished; })) {
      break;
    }
    if (steps.empty()) continue;
    std::shuffle(steps.begin(), steps.end(), random);
    FillFreePages(models->target_cache.get(), round % 2 == 0 ? NAN : 1e30f);
    FillFreePages(models->draft_cache.get(), round % 2 == 0 ? 1e30f : NAN);
    std::vector<Tokens> before;
    for (const RoundStep& step : steps) before.push_back(step.session->tokens);
    if (!models->Round(drafter, steps).ok()) {
      ++num_failures;
      for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].session->tokens, before[i]);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectCachesHoldCommittedTokens(models, *sessions));
  }
  EXPECT_EQ(num_failures > 0, disturbances.failing);
}

TEST(RunRound, ExactMatchEqualsPlainDecodingUnderDisturbances) {
  std::mt19937_64 random(4);
  const Disturbances all[] = {{},
                              {.failing = true},
                              {.preempting = true},
                              {.evicting = true},
                              {.chunking = true},
                              {true, true, true, true}};
  for (const Disturbances& disturbances : all) {
    for (int trial = 0; trial < 4; ++trial) {
      std::vector<Ask> asks;
      for (const SamplingParams& sampling : AllSampling()) {
        asks.push_back(
            {.prompt = RandomTokens(random, kSmallVocab, 1 + static_cast<int>(random() % 20)),
             .max_tokens = 10 + static_cast<int>(random() % 30),
             .sampling = sampling,
             .seed = random(),
             .logprobs = {.num_top = 1}});
      }
      RoundModels models;
      std::vector<std::unique_ptr<Session>> sessions;
      for (const Ask& ask : asks) sessions.push_back(Start(&models, &models.drafter, ask));
      ASSERT_NO_FATAL_FAILURE(
          RunDisturbed(&models, &models.drafter, disturbances, random, &sessions));
      RoundModels undisturbed;
      for (size_t i = 0; i < asks.size(); ++i) {
        ExpectSameCompletion(*sessions[i], *Plain(asks[i], &undisturbed));
      }
    }
  }
}

// A round whose verification fails leaves every session unchanged. A retry gives the text of a run
// without failures under every rule, because random numbers belong to the round and not to the
// attempt.
TEST(RunRound, SurvivesFailures) {
  for (const AcceptanceRule rule : kAllRules) {
    std::vector<Tokens> expected;
    for (const int fail_every : {0, 3}) {
      RoundModels models;
      models.target.options().fail_every = fail_every;
      std::vector<std::unique_ptr<Session>> sessions;
      for (int i = 0; i < 4; ++i) {
        sessions.push_back(Start(&models, &models.drafter,
                                 {.prompt = {3, 1, 4, i}, .seed = static_cast<uint64_t>(i)}, rule));
      }
      int num_failures = 0;
      for (int done = 0; done < 5;) {
        std::vector<RoundStep> steps;
        for (const auto& s : sessions) steps.push_back({s.get(), s->num_pending(), 4});
        models.Round(&models.drafter, steps).ok() ? ++done : ++num_failures;
      }
      EXPECT_EQ(num_failures > 0, fail_every > 0);
      for (int i = 0; i < 4; ++i) {
        if (fail_every == 0) expected.push_back(sessions[i]->tokens);
        EXPECT_EQ(sessions[i]->tokens, expected[i]) << NameOf(rule);
      }
    }
  }
}

TEST(RunRound, ContinuesWithoutAFailedDraft) {
  RoundModels models;
  models.draft.options().fail_every = 2;  // after the first draft token, which is dropped too
  const auto s = Start(&models, &models.drafter, {.prompt = {1, 2, 3}, .max_tokens = 5});
  while (!s->finished) ASSERT_TRUE(models.Round(&models.drafter, s.get(), 4).ok());
  EXPECT_EQ(s->num_output(), 5);
  // The fourth round has room for one draft token, which takes a single pass.
  EXPECT_EQ(s->completion.stats.draft_failures, 3);
  EXPECT_EQ(s->completion.stats.proposed, 1);
  EXPECT_EQ(s->completion.provenance.substr(0, 3), "ppp");
}

// While a prompt is read in chunks, the draft reads the same chunks. In decoding without drafts it
// does not run.
TEST(RunRound, DraftReadsPromptsInTheSameChunks) {
  RoundModels models({.chunk_tokens = 100});
  std::mt19937_64 random(5);
  const auto s = Start(&models, &models.drafter, {.prompt = RandomTokens(random, kSmallVocab, 20)});
  s->draft_tokens = 4;  // a draft of fixed length always reads along
  for (const int length : {6, 12, 18}) {
    const RoundStep step{.session = s.get(), .num_fed = 6, .granted = 0};
    ASSERT_TRUE(models.Round(&models.drafter, {&step, 1}).ok());
    EXPECT_EQ(s->target_kv.length(), length);
    EXPECT_EQ(models.draft.passes().back()[0].kv->length(), length);
  }
  const size_t num_passes = models.draft.passes().size();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(models.Round(&models.drafter, s.get(), 0).ok());
  EXPECT_EQ(models.draft.passes().size(), num_passes);
  EXPECT_EQ(s->num_output(), 3);
}

// Holds in whichever round a draft model first runs.
TEST(RunRound, DoesNotLearnCostsWhileWeightsArePacked) {
  // The first round with a draft would be measured, because its costs are new.
  constexpr int kRounds = 3;
  for (const bool packs : {true, false}) {
    RoundModels models({.draft = {.salt = 2, .packs_for = packs ? kRounds : 0}});
    const auto s = Start(&models, &models.drafter, {.prompt = {1, 2, 3}});
    while (!models.policy.measures()) {
      ASSERT_TRUE(models.Round(&models.drafter, s.get(), 0).ok());
    }
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_EQ(models.policy.costs().knows_step(), !packs && i > 0);
      ASSERT_TRUE(models.Round(&models.drafter, s.get(), 1).ok());
    }
    EXPECT_FALSE(models.draft.passes().empty());
    EXPECT_EQ(models.policy.costs().knows_step(), !packs);
    EXPECT_EQ(models.policy.measures(), !packs);
  }
}

TEST(RunRound, InvalidRowFailsOnlyItsSession) {
  RoundModels models;
  models.target.options().poisoned = [](absl::Span<const TokenId> context) {
    return context[0] == 1 && context.size() == 9;
  };
  std::vector<std::unique_ptr<Session>> sessions;
  for (const TokenId first : {1, 2}) {
    sessions.push_back(Start(&models, &models.drafter, {.prompt = {first, 0, 0}}));
  }
  while (!sessions[1]->finished) {
    std::vector<RoundStep> steps;
    for (const auto& s : sessions) {
      if (!s->finished) steps.push_back({s.get(), s->num_pending(), std::min(3, s->DraftRoom())});
    }
    ASSERT_TRUE(models.Round(&models.drafter, steps).ok());
  }
  EXPECT_THAT(std::string(sessions[0]->status.message()), HasSubstr("position 9"));
  EXPECT_EQ(sessions[0]->length(), 9);
  EXPECT_TRUE(sessions[1]->status.ok());
  EXPECT_EQ(sessions[1]->num_output(), 30);
}

// A NaN row fails only the generations that reach it, after their earlier tokens. A draft that
// merely looks ahead, past a rejection or a stop token, does not fail its generation.
TEST(RunRound, FailsAtTheSameTokenAsPlainDecoding) {
  int num_failed = 0;
  int num_stopped = 0;
  for (const AcceptanceRule rule : kAllRules) {
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const Ask ask{.prompt = {static_cast<TokenId>(seed % kSmallVocab), 2},
                    .max_tokens = 12,
                    .sampling = {.temperature = rule == kAllRules[0] ? 1.0f : 0.0f},
                    .seed = seed,
                    .stop_tokens = {5},
                    .logprobs = {.num_top = 0}};
      RoundModels models;
      models.target.options().poisoned = [seed](absl::Span<const TokenId> context) {
        return context.back() == 5 || (context.back() + context.size() + seed) % 13 == 0;
      };
      const auto plain = Plain(ask, &models);
      num_failed += !plain->status.ok();
      num_stopped += plain->status.ok() && plain->completion.finish_reason == FinishReason::kStop;
      for (const int k : {1, 3, 8}) {
        models.draft.options().salt = 1;  // mostly right
        const auto s = Start(&models, &models.drafter, ask, rule);
        while (!s->finished) ASSERT_TRUE(models.Round(&models.drafter, s.get(), k).ok());
        ExpectSameCompletion(*s, *plain);
        EXPECT_EQ(s->status, plain->status) << NameOf(rule);
      }
    }
  }
  EXPECT_GT(num_failed, 50);
  EXPECT_GT(num_stopped, 50);
}

// A stop token ends the text at the same token as in plain decoding, at every offset of the round
// and under every limit. Drafted stop tokens that are not accepted have no effect.
TEST(RunRound, StopsAtTheSameTokenAsPlainDecoding) {
  RoundModels models;
  FunctionDrafter spam([](const DraftRequest& request, Proposal* proposal) {
    for (int i = 0; i < request.granted; ++i) Suggest(5, proposal);
  });
  int num_stops = 0;
  for (uint64_t seed = 0; seed < 25; ++seed) {
    for (int max_tokens = 1; max_tokens < 14; ++max_tokens) {
      const Ask ask{.prompt = {1, 2},
                    .max_tokens = max_tokens,
                    .seed = seed,
                    .stop_tokens = {5},
                    .logprobs = {.num_top = 0}};
      const auto plain = Plain(ask, &models);
      num_stops += plain->completion.finish_reason == FinishReason::kStop;
      for (Drafter* drafter :
           {static_cast<Drafter*>(&models.drafter), static_cast<Drafter*>(&spam)}) {
        for (const int k : {1, 3, 8}) {
          const auto s = Start(&models, drafter, ask);
          while (!s->finished) ASSERT_TRUE(models.Round(drafter, s.get(), k).ok());
          ExpectSameCompletion(*s, *plain);
          EXPECT_LE(s->target_kv.length(), s->num_cacheable());
        }
      }
    }
  }
  EXPECT_GT(num_stops, 100);
}

}  // namespace
}  // namespace tandem
