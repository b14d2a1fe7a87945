// Whole engines: what speculation, batches, chunks, caches and preemption must not change, how
// generations end, and what is refused.
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer.h"
#include "tests/engine_testing.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr SamplingParams kGreedy = {.temperature = 0.0f};

// Prompts of 1 to 15 tokens, that share beginnings.
std::vector<std::vector<TokenId>> PromptsFrom(const std::vector<TokenId>& ids, int count) {
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> prompt;
    for (int j = 0; j <= 2 * i; ++j) prompt.push_back(ids[j % ids.size()] + (j > 9 ? i : 0));
    prompts.push_back(prompt);
  }
  return prompts;
}

// What the target itself says: its rows over `tokens`, in one pass of its own.
std::vector<TokenLogprobs> LogprobsAlone(const std::string& folder,
                                         const std::vector<TokenId>& tokens, int num_top) {
  const std::unique_ptr<Backend> backend =
      *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32, .isa = ""});
  const std::unique_ptr<Transformer> model = *Transformer::Load(folder, backend.get());
  const std::unique_ptr<PagedKvCache> cache =
      *PagedKvCache::Create(backend.get(), model->kv_layout(16), 64);
  KvSequence kv = cache->NewSequence();
  const ForwardRequest request{
      .tokens = tokens, .kv = &kv, .num_logits = static_cast<int>(tokens.size())};
  const MatrixView rows = *model->Forward({&request, 1});
  std::vector<TokenLogprobs> all;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    const float* row = static_cast<const float*>(rows.data) + i * rows.stride;
    all.push_back(LogprobsOf({row, static_cast<size_t>(rows.cols)}, tokens[i + 1], num_top));
  }
  return all;
}

// ---- The same output, whatever shares the work ----

struct Setting {
  int page_size;
  int max_batch;
};

TEST(Engine, GreedyTextIsThatOfPlainDecoding) {
  for (const std::string name : {"shallow", "perturbed"}) {
    const GoldenPair pair(name);
    std::vector<Request> requests;
    for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 8)) {
      requests.push_back({.prompt_ids = prompt,
                          .max_tokens = 24,
                          .sampling = kGreedy,
                          .ignore_eos = true,
                          .logprobs = {.num_top = 2}});
    }
    EngineOptions plain_options = CpuOptionsFor(pair.target, "");
    plain_options.max_batch = 1;
    plain_options.prefix_cache = false;
    const std::vector<Completion> plain = GenerateAll(MakeEngine(plain_options).get(), requests);
    for (const int page_size : {1, 4, 16}) {
      for (const int max_batch : {1, 3, 8}) {
        EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
        options.page_size = page_size;
        options.max_batch = max_batch;
        const std::unique_ptr<Engine> engine = MakeEngine(options);
        for (int k = 0; k <= 8; ++k) {
          SCOPED_TRACE(absl::StrCat(name, " page ", page_size, " batch ", max_batch, " k ", k));
          for (Request& request : requests) request.draft_tokens = k;
          const std::vector<Completion> got = GenerateAll(engine.get(), requests);
          for (size_t i = 0; i < got.size(); ++i) {
            ExpectSameOutput(got[i], plain[i]);
            ExpectConsistent(got[i]);
          }
        }
      }
    }
  }
}

TEST(Engine, TheShippedPairWritesThePlainText) {
  std::vector<Request> requests;
  for (const std::string prompt :
       {"Once upon a time", "The little dog", "Lily wanted to", "One day, Tom and"}) {
    requests.push_back({.prompt = prompt, .max_tokens = 20, .sampling = kGreedy});
  }
  EngineOptions plain_options = CpuOptionsFor(ShippedModelPath("storyteller-7m"), "");
  plain_options.max_batch = 1;
  plain_options.compute = "auto";  // bf16 products where the CPU has them
  const std::vector<Completion> plain = GenerateAll(MakeEngine(plain_options).get(), requests);
  EXPECT_THAT(plain[0].text, HasSubstr("there "));
  int k = 0;
  for (const Setting& setting : {Setting{1, 3}, Setting{4, 8}, Setting{16, 1}}) {
    EngineOptions options =
        CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
    options.compute = "auto";
    options.page_size = setting.page_size;
    options.max_batch = setting.max_batch;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    for (int i = 0; i < 3; ++i) {
      for (Request& request : requests) request.draft_tokens = k;
      SCOPED_TRACE(absl::StrCat("page ", setting.page_size, " k ", k));
      k = (k + 5) % 9;
      const std::vector<Completion> got = GenerateAll(engine.get(), requests);
      for (size_t j = 0; j < got.size(); ++j) ExpectSameOutput(got[j], plain[j]);
    }
  }
}

// Every way to shape the distribution, alone and together.
std::vector<SamplingParams> SamplingSettings() {
  return {
      {.temperature = 1.0f},
      {.temperature = 0.7f},
      {.temperature = 1.5f, .top_k = 20},
      {.temperature = 1.0f, .top_p = 0.8f},
      {.temperature = 1.2f, .min_p = 0.1f},
      {.temperature = 0.9f, .repetition_penalty = 1.3f},
      {.temperature = 0.9f, .frequency_penalty = 0.8f},
      {.temperature = 0.9f, .presence_penalty = 1.5f},
      {.temperature = 1.0f, .logit_bias = {{3, 9.0f}, {5, -100.0f}, {7, 6.5f}}},
      {.temperature = 0.0f, .repetition_penalty = 1.5f, .frequency_penalty = 0.5f},
      {.temperature = 1.1f,
       .top_k = 60,
       .top_p = 0.95f,
       .min_p = 0.01f,
       .repetition_penalty = 1.1f,
       .frequency_penalty = 0.3f,
       .presence_penalty = -0.4f,
       .logit_bias = {{11, 3.0f}}},
  };
}

TEST(Engine, SeededSamplesAreThoseOfPlainDecoding) {
  for (const std::string name : {"shallow", "perturbed"}) {
    const GoldenPair pair(name);
    const std::unique_ptr<Engine> plain_engine = MakeEngine(CpuOptionsFor(pair.target, ""));
    const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
    uint64_t seed = 100;
    RoundStats all;
    for (const SamplingParams& sampling : SamplingSettings()) {
      for (const bool processed : {false, true}) {
        Request request{.prompt_ids = pair.prompt_ids,
                        .max_tokens = 40,
                        .sampling = sampling,
                        .seed = ++seed,
                        .ignore_eos = true,
                        .logprobs = {.num_top = 3, .processed = processed}};
        const Completion plain = Generate(plain_engine.get(), request);
        EXPECT_EQ(plain.verifier, "exact_match");
        for (const int k : {0, 1, 3, 8, kAutoDraftTokens}) {
          SCOPED_TRACE(absl::StrCat(name, " seed ", seed, " k ", k));
          request.draft_tokens = k;
          const Completion got = Generate(engine.get(), request);
          ExpectSameOutput(got, plain);
          ExpectConsistent(got);
          all += got.stats;
        }
      }
    }
    EXPECT_GT(all.accepted, all.proposed / 20);  // it did speculate
  }
}

TEST(Engine, ThreadsChangeNoBit) {
  EngineOptions options =
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.compute = "auto";
  const Request request{.prompt = "Once upon a time",
                        .max_tokens = 6,
                        .sampling = {.temperature = 0.8f},
                        .seed = 4,
                        .draft_tokens = 3,
                        .logprobs = {.num_top = 3},
                        .prompt_logprobs = {.num_top = 0}};
  const Completion want = Generate(MakeEngine(options).get(), request);
  for (const int threads : {2, 3}) {
    options.threads = threads;
    ExpectSameOutput(Generate(MakeEngine(options).get(), request), want);
  }
}

TEST(Engine, SeedAndSequenceChooseTheOutput) {
  const GoldenPair pair("shallow");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  const auto ids = [&](std::optional<uint64_t> seed, uint32_t sequence) {
    return Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                   .max_tokens = 20,
                                   .seed = seed,
                                   .sequence = sequence,
                                   .ignore_eos = true})
        .token_ids;
  };
  EXPECT_EQ(ids(1, 0), ids(1, 0));
  EXPECT_NE(ids(1, 0), ids(2, 0));
  EXPECT_NE(ids(1, 0), ids(1, 1));
  EXPECT_EQ(ids(1, 1), ids(1, 1));
  EXPECT_NE(ids(std::nullopt, 0), ids(std::nullopt, 0));
}

// Chunks, prefix hits and batches: the same tokens, and the draft is none the worse for them.
TEST(Engine, ChunksAndPrefixHitsChangeNeitherOutputNorAcceptance) {
  const GoldenPair pair("perturbed");
  std::vector<TokenId> prompt = pair.prompt_ids;
  prompt.insert(prompt.end(), pair.output_ids.begin(), pair.output_ids.begin() + 9);
  const std::vector<TokenId> longer(pair.output_ids.begin() + 9, pair.output_ids.begin() + 14);
  Request request{.prompt_ids = prompt,
                  .max_tokens = 40,
                  .sampling = kGreedy,
                  .ignore_eos = true,
                  .draft_tokens = 4,
                  .logprobs = {.num_top = 1}};
  Request second = request;
  second.prompt_ids.insert(second.prompt_ids.end(), longer.begin(), longer.end());
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.prefix_cache = false;
  const std::unique_ptr<Engine> reference = MakeEngine(options);
  const Completion want = Generate(reference.get(), request);
  const Completion want_second = Generate(reference.get(), second);
  EXPECT_EQ(want_second.cached_tokens, 0);
  for (const bool prefix_cache : {false, true}) {
    for (const int page_size : {1, 4, 16}) {
      for (int chunk = 1; chunk <= page_size + 1; ++chunk) {
        SCOPED_TRACE(
            absl::StrCat("prefixes ", prefix_cache, " page ", page_size, " chunk ", chunk));
        options.prefix_cache = prefix_cache;
        options.page_size = page_size;
        options.chunk_tokens = chunk;
        const std::unique_ptr<Engine> engine = MakeEngine(options);
        for (int time = 0; time < 2; ++time) {
          const Completion got = Generate(engine.get(), request);
          ExpectSameOutput(got, want);
          ExpectSameCounts(got.stats, want.stats);
          const int full_pages = (static_cast<int>(prompt.size()) - 1) / page_size;
          EXPECT_EQ(got.cached_tokens, prefix_cache && time == 1 ? full_pages * page_size : 0);
        }
        const Completion got = Generate(engine.get(), second);
        ExpectSameOutput(got, want_second);
        ExpectSameCounts(got.stats, want_second.stats);
        EXPECT_EQ(got.cached_tokens > 0, prefix_cache);
      }
    }
  }
}

// Each turn finds all that was said before, the engine's own words included.
TEST(Engine, EveryTurnOfAConversationIsFoundInTheCache) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  options.prefix_cache = false;
  const std::unique_ptr<Engine> without = MakeEngine(options);
  Request request{.prompt_ids = pair.prompt_ids,
                  .max_tokens = 21,
                  .sampling = kGreedy,
                  .ignore_eos = true,
                  .draft_tokens = 4};
  int known = 0;
  for (int turn = 0; turn < 6; ++turn) {
    SCOPED_TRACE(absl::StrCat("turn ", turn));
    const Completion got = Generate(engine.get(), request);
    const Completion want = Generate(without.get(), request);
    ExpectSameOutput(got, want);
    ExpectSameCounts(got.stats, want.stats);  // the draft found it too
    EXPECT_EQ(got.cached_tokens, known);
    std::vector<TokenId>& prompt = request.prompt_ids;
    prompt.insert(prompt.end(), got.token_ids.begin(), got.token_ids.end());
    known = (static_cast<int>(prompt.size()) - 1) / 4 * 4;  // the last token is not read yet
    prompt.push_back(turn);
    prompt.push_back(100);
  }
}

TEST(Engine, TheSamePromptManyTimesAtOnce) {
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  options.chunk_tokens = 7;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  std::vector<TokenId> prompt = pair.prompt_ids;
  prompt.insert(prompt.end(), pair.output_ids.begin(), pair.output_ids.begin() + 30);
  const Request request{
      .prompt_ids = prompt, .max_tokens = 15, .sampling = kGreedy, .ignore_eos = true};
  const std::vector<TokenId> want(pair.output_ids.begin() + 30, pair.output_ids.begin() + 45);
  for (const Completion& got : GenerateAll(engine.get(), std::vector<Request>(11, request))) {
    EXPECT_EQ(got.token_ids, want);
  }
}

TEST(Engine, BatchesDoNotChangeAcceptance) {
  const GoldenPair pair("shallow");
  std::vector<Request> requests;
  for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 8)) {
    requests.push_back({.prompt_ids = prompt,
                        .max_tokens = 30,
                        .sampling = kGreedy,
                        .ignore_eos = true,
                        .draft_tokens = 3});
  }
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.max_batch = 1;
  const std::vector<Completion> alone = GenerateAll(MakeEngine(options).get(), requests);
  options.max_batch = 8;
  const std::vector<Completion> together = GenerateAll(MakeEngine(options).get(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSameOutput(together[i], alone[i]);
    ExpectSameCounts(together[i].stats, alone[i].stats);
  }
}

// Bytes of both caches of the shallow pair for `tokens` tokens.
int64_t BytesFor(const std::string& target, const std::string& draft, int tokens) {
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target, draft));
  return tokens * (engine->target_info().kv_bytes_per_token +
                   (draft.empty() ? 0 : engine->draft_info()->kv_bytes_per_token));
}

// Room for the longest generation and a little more: the others are preempted, again and again.
TEST(Engine, PreemptionChangesNothing) {
  const GoldenPair pair("shallow");
  for (const std::string& draft : {std::string(), pair.draft}) {
    std::vector<Request> requests;
    uint64_t seed = 7;
    for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 8)) {
      requests.push_back(
          {.prompt_ids = prompt,
           .max_tokens = 45,
           .sampling = {.temperature = seed % 2 == 0 ? 0.0f : 0.9f, .repetition_penalty = 1.1f},
           .seed = ++seed,
           .ignore_eos = true,
           .draft_tokens = 3,
           .logprobs = {.num_top = 1},
           .prompt_logprobs = {.num_top = seed % 3 == 0 ? 1 : -1}});
    }
    EngineOptions options = CpuOptionsFor(pair.target, draft);
    options.max_batch = 1;
    const std::vector<Completion> want = GenerateAll(MakeEngine(options).get(), requests);
    for (const bool prefix_cache : {false, true}) {
      for (const int chunk_tokens : {3, 256}) {
        SCOPED_TRACE(absl::StrCat("prefixes ", prefix_cache, " chunk ", chunk_tokens));
        options.max_batch = 8;
        options.prefix_cache = prefix_cache;
        options.chunk_tokens = chunk_tokens;
        options.page_size = 4;
        options.kv_memory_bytes = BytesFor(pair.target, draft, 64);
        const std::unique_ptr<Engine> engine = MakeEngine(options);
        EXPECT_EQ(engine->target_info().num_pages, 16);
        const std::vector<Completion> got = GenerateAll(engine.get(), requests);
        int num_preemptions = 0;
        for (size_t i = 0; i < requests.size(); ++i) {
          ExpectSameOutput(got[i], want[i]);
          ExpectConsistent(got[i]);
          num_preemptions += got[i].num_preemptions;
        }
        EXPECT_EQ(got[0].num_preemptions, 0);  // the oldest
        EXPECT_GT(num_preemptions, 0);
        // Nothing was lost on the way: all of it can be done again.
        ExpectSameOutput(Generate(engine.get(), requests[7]), want[7]);
      }
    }
  }
}

// ---- A draft that is the target ----

// Holes and wrong entries of the draft's cache cannot be seen in the output, but here.
TEST(Engine, ADraftThatIsTheTargetIsAlwaysAccepted) {
  const std::string model = GoldenModelPath("llama-rope3");
  EngineOptions options = CpuOptionsFor(model, model);
  options.page_size = 4;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  for (const std::string verifier : {"exact_match", "block", "token"}) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const int k : {1, 4, 7}) {
        SCOPED_TRACE(absl::StrCat(verifier, " temperature ", temperature, " k ", k));
        const Completion got = Generate(
            engine.get(), {.prompt_ids = {5, 9, 2, 250, 31},
                           .max_tokens = 500,
                           .sampling = {.temperature = temperature, .presence_penalty = 0.2f},
                           .ignore_eos = true,
                           .draft_tokens = k,
                           .verifier = verifier});
        EXPECT_EQ(got.token_ids.size(), 500u);
        EXPECT_EQ(got.stats.accepted, got.stats.proposed);
        EXPECT_EQ(got.stats.rounds, (500 + k) / (k + 1));
        EXPECT_EQ(got.stats.draft_failures, 0);
        ExpectConsistent(got);
      }
    }
  }
}

// ---- How generations end ----

// The first token of `ids` that is one of `stop`, or the cap: how many tokens come out, and why.
std::pair<int, std::string> EndOf(const std::vector<TokenId>& ids, TokenId stop, int cap) {
  const int found = static_cast<int>(std::find(ids.begin(), ids.end(), stop) - ids.begin());
  return found < cap ? std::pair(found + 1, "stop") : std::pair(cap, "length");
}

TEST(Engine, StopTokensAndLengthsCutEverywhereAlike) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (int offset = 0; offset < 14; ++offset) {
    for (int cap = 1; cap <= 14; ++cap) {
      for (const int k : {0, 3, 8}) {
        SCOPED_TRACE(absl::StrCat("stop at ", offset, " cap ", cap, " k ", k));
        const TokenId stop = pair.output_ids[offset];
        const auto [size, reason] = EndOf(pair.output_ids, stop, cap);
        const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                       .max_tokens = cap,
                                                       .sampling = kGreedy,
                                                       .stop_tokens = {stop},
                                                       .ignore_eos = true,
                                                       .draft_tokens = k,
                                                       .logprobs = {.num_top = 0}});
        std::vector<TokenId> want(pair.output_ids.begin(), pair.output_ids.begin() + size);
        EXPECT_EQ(got.token_ids, want);
        EXPECT_EQ(got.finish_reason, reason);
        EXPECT_EQ(got.logprobs.size(), got.token_ids.size());
        if (reason == "stop") want.pop_back();  // its own text is not shown
        EXPECT_EQ(got.text, engine->tokenizer().Decode(want, /*skip_special=*/true));
        ExpectConsistent(got);
      }
    }
  }
}

TEST(Engine, TheModelsOwnEndTokensStopUnlessIgnored) {
  const GoldenPair pair("perturbed");
  const ModelCopy target(pair.target);
  const TokenId end = pair.output_ids[5];
  target.WriteJson("generation_config.json", {{"eos_token_id", {end, 2}}});
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(target.path(), pair.draft));
  Request request{
      .prompt_ids = pair.prompt_ids, .max_tokens = 20, .sampling = kGreedy, .draft_tokens = 4};
  const Completion stopped = Generate(engine.get(), request);
  EXPECT_EQ(stopped.finish_reason, "stop");
  EXPECT_EQ(stopped.token_ids.size(), static_cast<size_t>(EndOf(pair.output_ids, end, 20).first));
  request.ignore_eos = true;
  EXPECT_EQ(Generate(engine.get(), request).token_ids.size(), 20u);
}

// The beginnings of the characters of a UTF-8 text, and its end.
std::vector<size_t> CharacterStarts(const std::string& text) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(text.size());
  return starts;
}

// Every stretch of three characters of the text as a stop string, with every cap.
void ExpectStopStringsCut(Engine* engine, const Request& base, size_t last_offset,
                          const std::vector<int>& caps) {
  const Completion all = Generate(engine, base);
  const std::vector<size_t> starts = CharacterStarts(all.text);
  ASSERT_GT(starts.size(), 6u);
  for (size_t offset = 0; offset + 3 < std::min(starts.size(), last_offset); ++offset) {
    const std::string stop = all.text.substr(starts[offset], starts[offset + 3] - starts[offset]);
    for (const int cap : caps) {
      Request request = base;
      request.stop = {stop};
      request.max_tokens = cap;
      request.draft_tokens = 0;
      const Completion plain = Generate(engine, request);
      if (plain.finish_reason == "stop") {
        EXPECT_EQ(plain.text, all.text.substr(0, all.text.find(stop)));
      } else {
        EXPECT_EQ(plain.text.find(stop), std::string::npos);
      }
      EXPECT_TRUE(
          std::equal(plain.token_ids.begin(), plain.token_ids.end(), all.token_ids.begin()));
      for (const int k : {3, 8}) {
        SCOPED_TRACE(absl::StrCat("stop at ", offset, " cap ", cap, " k ", k));
        request.draft_tokens = k;
        std::string streamed;
        const auto got = engine->Generate(request, [&](const Piece& piece) {
          streamed += piece.text;
          return true;
        });
        ASSERT_TRUE(got.ok()) << got.status();
        ExpectSameOutput(*got, plain);
        ExpectConsistent(*got);
        EXPECT_EQ(streamed, got->text);
      }
    }
  }
}

TEST(Engine, StopStringsCutEverywhereAlike) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  ExpectStopStringsCut(engine.get(),
                       {.prompt_ids = pair.prompt_ids,
                        .max_tokens = 12,
                        .sampling = kGreedy,
                        .ignore_eos = true,
                        .logprobs = {.num_top = 0}},
                       100, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
}

TEST(Engine, StopStringsCutTheShippedPairsText) {
  const std::unique_ptr<Engine> engine = MakeEngine(
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m")));
  ExpectStopStringsCut(
      engine.get(), {.prompt = "Once upon a time", .max_tokens = 8, .sampling = kGreedy}, 30, {8});
}

TEST(Engine, ADraftedStopTokenThatIsRejectedEndsNothing) {
  const GoldenPair pair("shallow");
  // What the draft wants at places where the target wants something else, and never says.
  std::vector<TokenId> stop;
  for (size_t i = 0; i < pair.output_ids.size(); ++i) {
    const TokenId drafted = pair.draft_ids_on_path[i];
    if (std::find(pair.output_ids.begin(), pair.output_ids.end(), drafted) ==
        pair.output_ids.end()) {
      stop.push_back(drafted);
    }
  }
  ASSERT_GT(stop.size(), 10u);
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (const std::string verifier : {"exact_match", "block", "token"}) {
    for (const nlohmann::json& run : pair.runs) {
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = 64,
                                                     .sampling = kGreedy,
                                                     .stop_tokens = stop,
                                                     .ignore_eos = true,
                                                     .draft_tokens = run["k"].get<int>(),
                                                     .verifier = verifier});
      EXPECT_EQ(got.token_ids, pair.output_ids);
      EXPECT_EQ(got.finish_reason, "length");
      EXPECT_EQ(got.stats.proposed, run["proposed"]);  // nor does it end the draft
    }
  }
}

TEST(Engine, TheContextEndsAGeneration) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  const int context = engine->target_info().context_length;
  EXPECT_EQ(context, 256);
  for (const int prompt_length : {context - 1, context - 2, context - 20}) {
    Request request{.prompt_ids = std::vector<TokenId>(prompt_length, 17),
                    .max_tokens = 100,
                    .sampling = kGreedy,
                    .ignore_eos = true,
                    .draft_tokens = 0};
    const Completion plain = Generate(engine.get(), request);
    EXPECT_EQ(plain.finish_reason, "length");
    EXPECT_EQ(static_cast<int>(plain.token_ids.size()), context - prompt_length);
    for (int k = 1; k <= 8; ++k) {
      request.draft_tokens = k;
      ExpectSameOutput(Generate(engine.get(), request), plain);
    }
  }
}

TEST(Engine, BeyondTheDraftsContextDecodingGoesOnWithoutIt) {
  const GoldenPair pair("perturbed");
  constexpr int kDraftContext = 40;
  const ModelCopy draft(pair.draft);
  draft.SetConfig("max_position_embeddings", kDraftContext);
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, draft.path()));
  EXPECT_EQ(engine->draft_info()->context_length, kDraftContext);
  const int prompt_length = static_cast<int>(pair.prompt_ids.size());
  for (const int k : {1, 2, 3, 4, 5, 6, 7, 8, kAutoDraftTokens}) {
    SCOPED_TRACE(absl::StrCat("k ", k));
    const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                   .max_tokens = 64,
                                                   .sampling = kGreedy,
                                                   .ignore_eos = true,
                                                   .draft_tokens = k});
    EXPECT_EQ(got.token_ids, pair.output_ids);
    EXPECT_EQ(got.stats.draft_failures, 0);
    ExpectConsistent(got);
    if (k == kAutoDraftTokens) continue;
    // The last place it can speak for is right behind its context.
    const size_t beyond = kDraftContext + 1 - prompt_length;
    EXPECT_EQ(got.provenance.substr(beyond + 1).find_first_not_of('p'), std::string::npos)
        << got.provenance;
    EXPECT_NE(got.provenance.substr(0, beyond).find('a'), std::string::npos);
  }
  // A prompt that the draft cannot read at all.
  const std::vector<TokenId> prompt(kDraftContext + 20, 33);
  Request request{.prompt_ids = prompt, .max_tokens = 10, .sampling = kGreedy, .draft_tokens = 4};
  const Completion got = Generate(engine.get(), request);
  request.draft_tokens = 0;
  ExpectSameOutput(got, Generate(engine.get(), request));
  EXPECT_EQ(got.stats.proposed, 0);
}

// ---- Log-probabilities ----

TEST(Engine, LogprobsAreThoseOfAPassOverTheWholeText) {
  const GoldenPair pair("shallow");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (const std::string verifier : {"exact_match", "block", "token"}) {
    for (const int k : {0, 4}) {
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = 40,
                                                     .sampling = {.temperature = 0.8f},
                                                     .seed = 3,
                                                     .ignore_eos = true,
                                                     .draft_tokens = k,
                                                     .verifier = verifier,
                                                     .logprobs = {.num_top = 4},
                                                     .prompt_logprobs = {.num_top = 4}});
      std::vector<TokenId> tokens = pair.prompt_ids;
      tokens.insert(tokens.end(), got.token_ids.begin(), got.token_ids.end());
      // The row of token i stands at i - 1.
      const std::vector<TokenLogprobs> rows = LogprobsAlone(pair.target, tokens, 4);
      Completion want = got;
      want.prompt_logprobs = {std::nullopt};
      want.prompt_logprobs.insert(want.prompt_logprobs.end(), rows.begin(),
                                  rows.begin() + pair.prompt_ids.size() - 1);
      want.logprobs.assign(rows.begin() + pair.prompt_ids.size() - 1, rows.end());
      ExpectSameOutput(got, want);
      EXPECT_EQ(got.logprobs.size(), 40u);
      EXPECT_EQ(got.prompt_logprobs.size(), pair.prompt_ids.size());
      EXPECT_THAT(got.logprobs, Each(testing::Field(&TokenLogprobs::top, testing::SizeIs(4))));
    }
  }
}

TEST(Engine, ProcessedLogprobsAreOfTheDistributionDrawnFrom) {
  const GoldenPair pair("shallow");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  Request request{.prompt_ids = pair.prompt_ids,
                  .max_tokens = 12,
                  .sampling = {.temperature = 1.0f, .top_k = 1},
                  .seed = 1,
                  .logprobs = {.num_top = 5, .processed = true}};
  for (const TokenLogprobs& logprobs : Generate(engine.get(), request).logprobs) {
    EXPECT_EQ(logprobs.logprob, 0.0f);
    EXPECT_EQ(logprobs.top.size(), 1u);
  }
}

TEST(Engine, PromptLogprobsAreTheSameInEveryChunking) {
  const GoldenPair pair("shallow");
  std::vector<TokenId> prompt = pair.prompt_ids;
  prompt.insert(prompt.end(), pair.output_ids.begin(), pair.output_ids.begin() + 24);
  Completion want;
  for (const int page_size : {1, 4, 16}) {
    for (int chunk = 1; chunk <= page_size + 1; ++chunk) {
      EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
      options.page_size = page_size;
      options.chunk_tokens = chunk;
      const std::unique_ptr<Engine> engine = MakeEngine(options);
      const Request request{.prompt_ids = prompt,
                            .max_tokens = 3,
                            .sampling = kGreedy,
                            .prompt_logprobs = {.num_top = 2}};
      // The second time a prefix hit would leave out rows that must be reported.
      for (int time = 0; time < 2; ++time) {
        const Completion got = Generate(engine.get(), request);
        EXPECT_EQ(got.prompt_logprobs.size(), prompt.size());
        EXPECT_FALSE(got.prompt_logprobs[0].has_value());
        if (want.token_ids.empty()) want = got;
        ExpectSameOutput(got, want);
      }
    }
  }
}

// ---- Streaming, cancelling, threads ----

TEST(Engine, PiecesJoinedAreTheCompletion) {
  const std::unique_ptr<Engine> engine = MakeEngine(
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m")));
  for (const std::vector<std::string>& stop :
       {std::vector<std::string>{}, std::vector<std::string>{" a", "gir", "zzz"}}) {
    std::string text;
    std::vector<TokenId> ids;
    std::string provenance;
    int num_pieces = 0;
    const auto got =
        engine->Generate({.prompt = "Once upon a time",
                          .max_tokens = 30,
                          .sampling = kGreedy,
                          .stop = stop,
                          .draft_tokens = 4},
                         [&](const Piece& piece) {
                           text += piece.text;
                           ids.insert(ids.end(), piece.token_ids.begin(), piece.token_ids.end());
                           provenance += piece.provenance;
                           ++num_pieces;
                           EXPECT_EQ(piece.token_ids.size(), piece.provenance.size());
                           return true;
                         });
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(text, got->text);
    EXPECT_EQ(ids, got->token_ids);
    EXPECT_EQ(provenance, got->provenance);
    EXPECT_EQ(num_pieces, got->stats.rounds);
    EXPECT_EQ(got->finish_reason, stop.empty() ? "length" : "stop");
  }
}

TEST(Engine, ACallbackMayEndItsGeneration) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (int rounds = 1; rounds <= 3; ++rounds) {
    int seen = 0;
    std::vector<TokenId> ids;
    const auto got = engine->Generate(
        {.prompt_ids = pair.prompt_ids, .max_tokens = 64, .sampling = kGreedy, .draft_tokens = 3},
        [&](const Piece& piece) {
          ids.insert(ids.end(), piece.token_ids.begin(), piece.token_ids.end());
          return ++seen < rounds;
        });
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->finish_reason, "cancelled");
    EXPECT_EQ(seen, rounds);
    EXPECT_EQ(got->token_ids, ids);
    EXPECT_EQ(got->stats.rounds, rounds);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), pair.output_ids.begin()));
  }
}

TEST(Engine, CancelEndsWhatRunsAndWhatWaits) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.max_batch = 1;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request request{
      .prompt_ids = pair.prompt_ids, .max_tokens = 64, .sampling = kGreedy, .ignore_eos = true};
  absl::Notification has_begun;
  absl::Notification may_go_on;
  const auto running = engine->Submit(request, [&](const Piece&) {
    if (!has_begun.HasBeenNotified()) {
      has_begun.Notify();
      may_go_on.WaitForNotification();
    }
    return true;
  });
  ASSERT_TRUE(running.ok()) << running.status();
  bool waiting_was_called = false;
  const auto waiting = engine->Submit(request, [&](const Piece&) {
    waiting_was_called = true;
    return true;
  });
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  const auto unharmed = engine->Submit(request, nullptr);
  ASSERT_TRUE(unharmed.ok()) << unharmed.status();
  has_begun.WaitForNotification();
  engine->Cancel(*running);
  engine->Cancel(*waiting);
  engine->Cancel(*waiting);
  engine->Cancel(12345);
  may_go_on.Notify();
  const auto cancelled = engine->Wait(*running);
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->finish_reason, "cancelled");
  EXPECT_EQ(cancelled->stats.rounds, 1);
  EXPECT_FALSE(cancelled->token_ids.empty());
  const auto never_run = engine->Wait(*waiting);
  ASSERT_TRUE(never_run.ok()) << never_run.status();
  EXPECT_EQ(never_run->finish_reason, "cancelled");
  EXPECT_TRUE(never_run->token_ids.empty());
  EXPECT_FALSE(waiting_was_called);
  const auto whole = engine->Wait(*unharmed);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->token_ids, pair.output_ids);
  engine->Cancel(*unharmed);  // long over
}

TEST(Engine, EveryGenerationIsWaitedForOnce) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, ""));
  EXPECT_EQ(engine->Wait(1).status().code(), absl::StatusCode::kNotFound);
  const auto id = engine->Submit({.prompt_ids = {1, 2}, .max_tokens = 2}, nullptr);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(engine->Wait(*id).ok());
  EXPECT_EQ(engine->Wait(*id).status().code(), absl::StatusCode::kNotFound);
}

TEST(Engine, MayBeDestroyedWithWorkInFlight) {
  const GoldenPair pair("shallow");
  for (int time = 0; time < 5; ++time) {
    std::atomic<int> calls = 0;
    {
      const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
      absl::Notification has_begun;
      for (int i = 0; i < 12; ++i) {
        ASSERT_TRUE(engine
                        ->Submit({.prompt_ids = pair.prompt_ids, .max_tokens = 200},
                                 [&](const Piece&) {
                                   if (calls++ == 0) has_begun.Notify();
                                   return true;
                                 })
                        .ok());
      }
      if (time > 0) has_begun.WaitForNotification();
    }
    // Whoever was called is not called any more.
    const int calls_at_the_end = calls;
    std::this_thread::yield();
    EXPECT_EQ(calls, calls_at_the_end);
  }
}

TEST(Engine, ManyThreadsMaySubmitAtOnce) {
  const GoldenPair pair("shallow");
  const std::vector<std::vector<TokenId>> prompts = PromptsFrom(pair.prompt_ids, 8);
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.max_batch = 3;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const auto request_of = [&](int i) {
    return Request{.prompt_ids = prompts[i % prompts.size()],
                   .max_tokens = 12,
                   .sampling = {.temperature = 0.9f},
                   .seed = i,
                   .ignore_eos = true};
  };
  constexpr int kThreads = 8;
  constexpr int kEach = 4;
  std::vector<Completion> want;
  for (int i = 0; i < kThreads * kEach; ++i) {
    want.push_back(Generate(engine.get(), request_of(i)));
  }
  std::vector<Completion> got(want.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kEach; i < (t + 1) * kEach; ++i) {
        got[i] = Generate(engine.get(), request_of(i));
        engine->stats();
        engine->Cancel(-1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < got.size(); ++i) ExpectSameOutput(got[i], want[i]);
}

TEST(Engine, StatsAddUp) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  RoundStats sum;
  ExpectSameCounts(engine->stats(), sum);
  for (const int k : {0, 2, 5, kAutoDraftTokens}) {
    const Completion got = Generate(
        engine.get(),
        {.prompt_ids = pair.prompt_ids, .max_tokens = 30, .draft_tokens = k, .verifier = "block"});
    EXPECT_EQ(got.draft_tokens, k);
    EXPECT_GT(got.timings.end_to_end, absl::ZeroDuration());
    EXPECT_GE(got.timings.end_to_end, got.timings.time_to_first_token);
    EXPECT_GE(got.timings.end_to_end, got.timings.prefill + got.timings.draft + got.timings.verify);
    sum += got.stats;
  }
  ExpectSameCounts(engine->stats(), sum);
}

// ---- What is refused ----

void ExpectRefused(const absl::Status& status, const std::string& field,
                   const std::string& given = "") {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(field), HasSubstr(given)));
}

TEST(Engine, RefusesRequestsThatCannotBeMet) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request good{.prompt_ids = {1, 2, 3}, .max_tokens = 4};
  const auto refusal = [&](auto change) {
    Request request = good;
    change(request);
    return engine->Submit(request, nullptr).status();
  };
  ExpectRefused(refusal([](Request& r) { r.prompt_ids = {}; }), "prompt", "empty");
  ExpectRefused(refusal([](Request& r) { r.prompt = "both"; }), "prompt", "both");
  ExpectRefused(refusal([](Request& r) {
                  r.prompt_ids = {};
                  r.prompt = "\xff\xfe";
                }),
                "UTF-8");
  ExpectRefused(refusal([](Request& r) { r.prompt_ids = {1, -1}; }), "prompt_ids", "-1");
  ExpectRefused(refusal([](Request& r) { r.prompt_ids = {320}; }), "prompt_ids", "320");
  ExpectRefused(refusal([](Request& r) { r.prompt_ids.assign(256, 1); }), "prompt", "256");
  ExpectRefused(refusal([](Request& r) { r.max_tokens = 0; }), "max_tokens", "0");
  ExpectRefused(refusal([](Request& r) { r.max_tokens = -5; }), "max_tokens", "-5");
  ExpectRefused(refusal([](Request& r) { r.sampling.temperature = -0.5f; }), "temperature", "-0.5");
  ExpectRefused(refusal([](Request& r) { r.sampling.temperature = std::nanf(""); }), "temperature");
  ExpectRefused(refusal([](Request& r) { r.sampling.top_k = -1; }), "top_k", "-1");
  ExpectRefused(refusal([](Request& r) { r.sampling.top_p = 0.0f; }), "top_p", "0");
  ExpectRefused(refusal([](Request& r) { r.sampling.top_p = 1.5f; }), "top_p", "1.5");
  ExpectRefused(refusal([](Request& r) { r.sampling.min_p = 2.0f; }), "min_p", "2");
  ExpectRefused(refusal([](Request& r) { r.sampling.repetition_penalty = 0.0f; }),
                "repetition_penalty", "0");
  ExpectRefused(refusal([](Request& r) { r.sampling.frequency_penalty = 3.0f; }),
                "frequency_penalty", "3");
  ExpectRefused(refusal([](Request& r) { r.sampling.presence_penalty = -3.0f; }),
                "presence_penalty", "-3");
  ExpectRefused(refusal([](Request& r) {
                  r.sampling.logit_bias = {{320, 1.0f}};
                }),
                "logit_bias", "320");
  ExpectRefused(refusal([](Request& r) {
                  r.sampling.logit_bias = {{1, 101.0f}};
                }),
                "logit_bias", "101");
  ExpectRefused(refusal([](Request& r) { r.draft_tokens = -2; }), "draft_tokens", "-2");
  ExpectRefused(refusal([](Request& r) { r.draft_tokens = 33; }), "draft_tokens", "33");
  ExpectRefused(refusal([](Request& r) { r.verifier = "foo"; }), "verifier", "foo");
  ExpectRefused(refusal([](Request& r) { r.stop = {"a", ""}; }), "stop", "empty");
  ExpectRefused(refusal([](Request& r) { r.stop_tokens = {999}; }), "stop_tokens", "999");
  ExpectRefused(refusal([](Request& r) { r.stop_tokens = {-1}; }), "stop_tokens", "-1");
  ExpectRefused(refusal([](Request& r) { r.logprobs.num_top = 101; }), "logprobs", "101");
  ExpectRefused(refusal([](Request& r) { r.logprobs.num_top = -2; }), "logprobs", "-2");
  ExpectRefused(refusal([](Request& r) { r.prompt_logprobs.num_top = 101; }), "prompt_logprobs",
                "101");
  EXPECT_EQ(Generate(engine.get(), good).token_ids.size(), 4u);
}

TEST(Engine, RefusesRequestsBeyondItsMemory) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, "");
  options.page_size = 4;
  options.kv_memory_bytes = BytesFor(pair.target, "", 20);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  Request request{.prompt_ids = std::vector<TokenId>(10, 3), .max_tokens = 10, .ignore_eos = true};
  EXPECT_EQ(Generate(engine.get(), request).token_ids.size(), 10u);
  request.max_tokens = 11;
  ExpectRefused(engine->Submit(request, nullptr).status(), "max_tokens", "kv_memory");
}

TEST(Engine, RefusesOptionsThatCannotBeMet) {
  const GoldenPair pair("perturbed");
  const EngineOptions good = CpuOptionsFor(pair.target, pair.draft);
  const auto refusal = [&](auto change) {
    EngineOptions options = good;
    change(options);
    return Engine::Create(options).status();
  };
  ExpectRefused(refusal([](EngineOptions& o) { o.target = ""; }), "target");
  ExpectRefused(refusal([](EngineOptions& o) { o.drafter = "foo"; }), "drafter", "foo");
  ExpectRefused(refusal([](EngineOptions& o) {
                  o.draft = "";
                  o.drafter = "model";
                }),
                "drafter", "model");
  ExpectRefused(refusal([](EngineOptions& o) { o.draft_tokens = 33; }), "draft_tokens", "33");
  ExpectRefused(refusal([](EngineOptions& o) { o.draft_tokens = -2; }), "draft_tokens", "-2");
  ExpectRefused(refusal([](EngineOptions& o) { o.verifier = "foo"; }), "verifier", "foo");
  ExpectRefused(refusal([](EngineOptions& o) { o.device = "foo"; }), "device", "foo");
  ExpectRefused(refusal([](EngineOptions& o) { o.compute = "foo"; }), "compute", "foo");
  ExpectRefused(refusal([](EngineOptions& o) { o.compute = "bf16"; }), "compute", "float32");
  ExpectRefused(refusal([](EngineOptions& o) { o.threads = -1; }), "threads", "-1");
  ExpectRefused(refusal([](EngineOptions& o) { o.page_size = 0; }), "page_size", "0");
  ExpectRefused(refusal([](EngineOptions& o) { o.max_batch = 0; }), "max_batch", "0");
  ExpectRefused(refusal([](EngineOptions& o) { o.chunk_tokens = 0; }), "chunk_tokens", "0");
  ExpectRefused(refusal([](EngineOptions& o) { o.kv_memory_bytes = -1; }), "kv_memory", "-1");
  ExpectRefused(refusal([](EngineOptions& o) { o.kv_memory_bytes = 1; }), "kv_memory", "1");
  EXPECT_EQ(refusal([](EngineOptions& o) { o.target += "-no"; }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal([](EngineOptions& o) { o.draft += "-no"; }).code(),
            absl::StatusCode::kNotFound);
}

TEST(Engine, RefusesADraftOfAnotherTokenizer) {
  const GoldenPair pair("perturbed");
  ExpectRefused(Engine::Create(CpuOptionsFor(pair.target, GoldenModelPath("llama-rope3"))).status(),
                "tokenizer", "llama-rope3");
  // Of the same size, two tokens exchanged.
  const ModelCopy draft(pair.draft);
  nlohmann::json tokenizer = draft.ReadJson("tokenizer.json");
  std::swap(tokenizer["model"]["vocab"]["!"], tokenizer["model"]["vocab"]["\""]);
  draft.WriteJson("tokenizer.json", tokenizer);
  ExpectRefused(Engine::Create(CpuOptionsFor(pair.target, draft.path())).status(), "tokenizer",
                "2 of 320");
  // The same in another form is the same.
  const ModelCopy reformatted(pair.draft);
  reformatted.Write("tokenizer.json", reformatted.ReadJson("tokenizer.json").dump(2) + "\n");
  EXPECT_TRUE(Engine::Create(CpuOptionsFor(pair.target, reformatted.path())).ok());
}

TEST(Engine, TakesPromptsAsTextAndAsIds) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(CpuOptionsFor(GoldenModelPath("llama-gqa"), ""));
  const auto ids = engine->tokenizer().Encode("Once upon a time", SpecialTokens::kParse);
  ASSERT_TRUE(ids.ok()) << ids.status();
  const Request by_text{.prompt = "Once upon a time", .max_tokens = 8, .sampling = kGreedy};
  Request by_ids = by_text;
  by_ids.prompt = "";
  by_ids.prompt_ids = engine->tokenizer().WithTemplate(*ids);
  EXPECT_EQ(by_ids.prompt_ids.size(), ids->size() + 1);  // this template adds <s>
  ExpectSameOutput(Generate(engine.get(), by_text), Generate(engine.get(), by_ids));
}

TEST(Engine, SaysWhatItRuns) {
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->drafter_name(), "model");
  EXPECT_EQ(engine->target_info().family, "qwen3");
  EXPECT_EQ(engine->target_info().path, pair.target);
  EXPECT_EQ(engine->target_info().dtype, "float32");
  // 3 layers of keys and values for 2 heads of 16 floats.
  EXPECT_EQ(engine->target_info().kv_bytes_per_token, 3 * 2 * 2 * 16 * 4);
  EXPECT_EQ(engine->draft_info()->path, pair.draft);
  EXPECT_EQ(engine->draft_info()->vocab_size, 288);
  options.drafter = "none";
  const std::unique_ptr<Engine> plain = MakeEngine(options);
  EXPECT_EQ(plain->drafter_name(), "none");
  EXPECT_FALSE(plain->draft_info().has_value());
  const Completion got =
      Generate(plain.get(), {.prompt_ids = {1}, .max_tokens = 3, .ignore_eos = true});
  EXPECT_EQ(got.draft_tokens, 0);
  EXPECT_EQ(got.provenance, "ppp");
}

}  // namespace
}  // namespace tandem
