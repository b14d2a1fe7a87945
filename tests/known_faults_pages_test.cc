// The bug catalogue (docs/bug_catalogue.md), section 5: pages, the prefix cache and preemption.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"
#include "tests/golden_file.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// Row 39. Sequences share prefixes, and most rounds reject a token: no page is copied.
TEST(KnownFaults, RollbacksCopyNoPage) {
  std::mt19937_64 random(1);
  RoundModels models;
  const Tokens prompt = RandomTokens(random, kSmallVocab, 21);
  std::vector<std::unique_ptr<Session>> sessions;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    sessions.push_back(
        Start(&models, &models.drafter, {.prompt = prompt, .max_tokens = 80, .seed = seed}));
    Session& s = *sessions.back();
    s.target_kv = models.target_cache->NewSequenceWithPrefix(prompt);
    EXPECT_EQ(s.target_kv.length(), seed == 0 ? 0 : 20);
    ASSERT_TRUE(models.Round(&models.drafter, &s, 3).ok());
    models.target_cache->Publish(s.tokens, &s.target_kv);
    models.drafter.Publish(s.draft_state.get(), s.tokens);
  }
  RunAll(&models, &models.drafter, sessions, 5);
  for (const auto& s : sessions) {
    EXPECT_GT(s->completion.stats.proposed, s->completion.stats.accepted + 20);
  }
  EXPECT_EQ(models.target_cache.backend()->num_copies(), 0);
  EXPECT_EQ(models.draft_cache.backend()->num_copies(), 0);
}

// Row 48. Unread pages of a prompt are not shared. A second sequence with the same prompt, started
// at any time, finds the published pages, which are complete, and writes the same text.
TEST(KnownFaults, APromptIsSharedOnlyAfterItIsRead) {
  std::mt19937_64 random(2);
  const Tokens prompt = RandomTokens(random, kSmallVocab, 19);
  RoundModels undisturbed;
  const auto plain = Plain({.prompt = prompt}, &undisturbed);
  for (int twin_at = 0; twin_at <= 19; ++twin_at) {
    RoundModels models;
    std::vector<std::unique_ptr<Session>> sessions;
    sessions.push_back(Start(&models, &models.drafter, {.prompt = prompt}));
    Session& first = *sessions[0];
    for (int read = 0; read < 19; ++read) {
      if (read == twin_at) {
        sessions.push_back(Start(&models, &models.drafter, {.prompt = prompt}));
        sessions[1]->target_kv = models.target_cache->NewSequenceWithPrefix(prompt);
        EXPECT_EQ(sessions[1]->target_kv.length(), read / 4 * 4);
      }
      FillFreePages(models.target_cache.get(), NAN);
      FillFreePages(models.draft_cache.get(), NAN);
      std::vector<RoundStep> steps;
      for (const auto& s : sessions) {
        if (s->num_pending() > 0) steps.push_back({.session = s.get(), .num_fed = 1});
      }
      ASSERT_TRUE(models.Round(&models.drafter, steps).ok());
      models.target_cache->Publish(first.tokens, &first.target_kv);
      models.drafter.Publish(first.draft_state.get(), first.tokens);
    }
    RunAll(&models, &models.drafter, sessions, 3);
    for (const auto& s : sessions) ExpectSameCompletion(*s, *plain);
  }
}

// Row 51. Draft pools of every size: drafts get shorter, but no token waits or changes, and no page
// is lost.
TEST(KnownFaults, DraftPoolsOfAnySizeDoNotChangeTheText) {
  std::mt19937_64 random(3);
  RoundModels undisturbed;
  std::vector<Ask> asks;
  std::vector<std::unique_ptr<Session>> plain;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    asks.push_back({.prompt = RandomTokens(random, kSmallVocab, 4 + 5 * static_cast<int>(seed)),
                    .max_tokens = 20,
                    .seed = seed});
    plain.push_back(Plain(asks.back(), &undisturbed));
  }
  int64_t max_proposed = 0;
  for (int num_pages = 1; num_pages <= 60; ++num_pages) {
    RoundModels models;
    FakeCache cache(2, num_pages);
    FakeModel draft(cache.get(), {.salt = 2});
    ModelDrafter drafter(&draft, cache.get(), kSmallVocab, 3);
    std::vector<std::unique_ptr<Session>> sessions;
    for (const Ask& ask : asks) sessions.push_back(Start(&models, &drafter, ask));
    RunAll(&models, &drafter, sessions, 4);
    int64_t proposed = 0;
    for (size_t i = 0; i < asks.size(); ++i) {
      ExpectSameCompletion(*sessions[i], *plain[i]);
      EXPECT_EQ(sessions[i]->completion.stats.draft_failures, 0);
      proposed += sessions[i]->completion.stats.proposed;
    }
    max_proposed = std::max(max_proposed, proposed);
    EXPECT_EQ(proposed > 0, num_pages > 1) << num_pages;
    sessions.clear();
    EXPECT_EQ(cache->num_free_pages(), num_pages);
  }
  EXPECT_GT(max_proposed, 60);
}

// Row 51. Target pools from the minimum that one request needs to more than all requests need.
TEST(KnownFaults, TargetPoolsOfAnySizeDoNotChangeTheText) {
  const GoldenPair pair("shallow");
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 5)) {
    requests.push_back({.prompt_ids = prompt,
                        .max_tokens = 18,
                        .sampling = kGreedy,
                        .ignore_eos = true,
                        .draft_tokens = 3,
                        .logprobs = {.num_top = 0}});
  }
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  const std::vector<Completion> want = GenerateAll(MakeEngine(options).get(), requests);
  options.page_size = 2;
  const int64_t page_bytes = KvBytesFor(pair.target, pair.draft, options.page_size);
  // The longest request has 9 prompt tokens and 18 more. Its last token is never cached.
  for (int num_pages = 14; num_pages <= 65; num_pages += num_pages < 30 ? 1 : 7) {
    SCOPED_TRACE(absl::StrCat(num_pages, " pages"));
    options.kv_memory_bytes = num_pages * page_bytes;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    ASSERT_EQ(engine->target_info().num_pages, num_pages);
    const std::vector<Completion> got = GenerateAll(engine.get(), requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectSameOutput(got[i], want[i]);
      ExpectConsistent(got[i]);
    }
  }
}

// Row 52. A session is preempted once, before any round. Its text and its accepted tokens stay the
// same.
TEST(KnownFaults, PreemptionAtAnyStepChangesNothing) {
  std::mt19937_64 random(4);
  const Ask ask{.prompt = RandomTokens(random, kSmallVocab, 11), .max_tokens = 40, .seed = 3};
  RoundModels models;
  std::unique_ptr<Session> want;
  int num_rounds = 1;
  for (int preempted_at = -1; preempted_at < num_rounds; ++preempted_at) {
    SCOPED_TRACE(absl::StrCat("before round ", preempted_at));
    auto s = Start(&models, &models.drafter, ask);
    int round = 0;
    for (; !s->finished; ++round) {
      if (round == preempted_at) {
        s->target_kv.Truncate(0);
        models.drafter.Evict(s->draft_state.get());
        FillFreePages(models.target_cache.get(), 1e30f);
        FillFreePages(models.draft_cache.get(), NAN);
      }
      // The prompt is read in two chunks.
      const RoundStep step{.session = s.get(),
                           .num_fed = round == 0 ? 5 : s->num_pending(),
                           .granted = round == 0 ? 0 : std::min(3, s->DraftRoom())};
      ASSERT_TRUE(models.Round(&models.drafter, {&step, 1}).ok());
    }
    if (want == nullptr) {
      num_rounds = round;
      want = std::move(s);
      continue;
    }
    ExpectSameCompletion(*s, *want);
    EXPECT_EQ(s->completion.provenance, want->completion.provenance);
  }
  EXPECT_GT(num_rounds, 10);
}

// Row 54. The text goes far past the window, with a draft that is mostly wrong. Windows are masks
// over a cache that keeps every token, so a rejected write destroys no token.
TEST(KnownFaults, RejectedDraftsKeepTokensInsideAWindow) {
  const std::string model = GoldenModelPath("mistral-window");
  const ModelCopy draft(model);
  draft.SetConfig("sliding_window", 2);
  const std::unique_ptr<Engine> plain = MakeEngine(CpuOptionsFor(model, ""));
  for (const int page_size : {1, 4, 16}) {
    EngineOptions options = DraftModelOptionsFor(model, draft.path());
    options.page_size = page_size;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    for (const int k : {1, 3, 8, 16}) {
      Request request{.prompt_ids = {5, 9, 2, 250, 31},
                      .max_tokens = 60,
                      .sampling = {.temperature = 0.8f},
                      .seed = static_cast<uint64_t>(k),
                      .ignore_eos = true,
                      .draft_tokens = k,
                      .logprobs = {.num_top = 1}};
      const Completion got = Generate(engine.get(), request);
      request.draft_tokens = 0;
      ExpectSameOutput(got, Generate(plain.get(), request));
      EXPECT_LT(got.stats.accepted, got.stats.proposed / 2);
      EXPECT_GT(got.stats.proposed, 40);
    }
  }
}

// Row 55. Models that cannot be rolled back are refused by name, and so are experts in a family
// that does not have any.
TEST(KnownFaults, RecurrentModelsAreRefused) {
  const GoldenPair pair("shallow");
  for (const char* type :
       {"mamba", "mamba2", "falcon_mamba", "rwkv", "jamba", "bamba", "zamba2", "recurrent_gemma",
        "qwen3_next", "granitemoehybrid", "lfm2", "qwen2_moe", "olmoe"}) {
    const ModelCopy copy(pair.target);
    copy.SetConfig("model_type", type);
    for (const bool as_draft : {false, true}) {
      const auto engine = Engine::Create(
          CpuOptionsFor(as_draft ? pair.target : copy.path(), as_draft ? copy.path() : pair.draft));
      ASSERT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument) << type;
      EXPECT_THAT(std::string(engine.status().message()), HasSubstr("model_type")) << type;
      EXPECT_THAT(std::string(engine.status().message()), HasSubstr(type));
    }
  }
  const ModelCopy hybrid(pair.target);
  hybrid.SetConfig("layer_types", {"full_attention", "linear_attention", "full_attention"});
  const auto engine = Engine::Create(CpuOptionsFor(hybrid.path(), pair.draft));
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("layer_types"));
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const ModelCopy experts(pair.target);
    experts.SetConfig(key, 8);
    const auto refused = Engine::Create(CpuOptionsFor(experts.path(), pair.draft));
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(key));
  }
}

}  // namespace
}  // namespace tandem
