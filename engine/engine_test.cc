// Whole engines: speculation, batches, chunks, caches and preemption must not change the output,
// and the reported log-probabilities are right.
#include "tandem/engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "model/transformer.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using testing::Each;
using testing::HasSubstr;

// Returns the target's own log-probabilities of `tokens`, from one pass over all of them.
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

// ---- The same output in every setting ----

struct Setting {
  int page_size;
  int max_batch;
};

TEST(Engine, GreedyTextEqualsPlainDecoding) {
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

// Drafts are rejected and accepted, prompts share pages, pages are copied, and sequences are
// preempted.
TEST(Engine, SpeculationEqualsPlainDecodingWithEveryCacheType) {
  for (const std::string kv_cache : {"f32", "bf16", "int8"}) {
    for (const std::string name : {"shallow", "perturbed"}) {
      const GoldenPair pair(name);
      std::vector<Request> requests = PlainRequests(PromptsFrom(pair.prompt_ids, 8), 20);
      EngineOptions options = CpuOptionsFor(pair.target, "");
      options.kv_cache = kv_cache;
      options.max_batch = 1;
      options.prefix_cache = false;
      const std::vector<Completion> plain = GenerateAll(MakeEngine(options).get(), requests);
      options.draft = pair.draft;
      options.prefix_cache = true;
      options.max_batch = 4;
      options.page_size = 4;
      options.kv_memory_bytes = 32 * KvBytesFor(pair.target, pair.draft, 4);
      const std::unique_ptr<Engine> engine = MakeEngine(options);
      int64_t cached_tokens = 0;
      for (const int k : {1, 3, 6}) {
        SCOPED_TRACE(absl::StrCat(name, " cache ", kv_cache, " k ", k));
        for (Request& request : requests) request.draft_tokens = k;
        const std::vector<Completion> got = GenerateAll(engine.get(), requests);
        for (size_t i = 0; i < got.size(); ++i) {
          ExpectSameOutput(got[i], plain[i]);
          ExpectConsistent(got[i]);
          cached_tokens += got[i].cached_tokens;
        }
      }
      EXPECT_GT(cached_tokens, 0);
    }
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

TEST(Engine, SeedAndSequenceDetermineTheOutput) {
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

// With any chunks, prefix hits and batches, the tokens are the same and as many of the draft's are
// accepted.
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
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
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

// Each turn finds all earlier turns in the cache, including the engine's own answers.
TEST(Engine, EveryTurnOfAConversationIsFoundInTheCache) {
  const GoldenPair pair("perturbed");
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
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
    ExpectSameCounts(got.stats, want.stats);  // the draft's prefix hit, too
    EXPECT_EQ(got.cached_tokens, known);
    std::vector<TokenId>& prompt = request.prompt_ids;
    prompt.insert(prompt.end(), got.token_ids.begin(), got.token_ids.end());
    known = (static_cast<int>(prompt.size()) - 1) / 4 * 4;  // the last token is not read yet
    prompt.push_back(turn);
    prompt.push_back(100);
  }
}

TEST(Engine, ReadsThePromptOfConcurrentRequestsOnce) {
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
  int num_read = 0;
  for (const Completion& got : GenerateAll(engine.get(), std::vector<Request>(11, request))) {
    EXPECT_EQ(got.token_ids, want);
    num_read += got.cached_tokens == 0;
  }
  // One request reads the prompt before the next one starts, whether or not they arrive in time for
  // the same batch.
  EXPECT_EQ(num_read, 1);
}

// A preempted sequence has published its pages, and later finds those that have not been evicted.
TEST(Engine, ResumesFromPagesThatAreStillCached) {
  const GoldenPair pair("shallow");
  const auto read_again = [&](bool prefix_cache) {
    EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
    options.page_size = 2;
    options.prefix_cache = prefix_cache;
    options.kv_memory_bytes = KvBytesFor(pair.target, pair.draft, 80);
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    std::vector<Request> requests;
    for (TokenId first = 1; first <= 3; ++first) {
      requests.push_back({.prompt_ids = {first, 2, 3, 4, 5, 6, 7, 8},
                          .max_tokens = 40,
                          .sampling = kGreedy,
                          .ignore_eos = true,
                          .draft_tokens = 0});
    }
    int num_preemptions = 0;
    int64_t rounds = 0;
    for (const Completion& got : GenerateAll(engine.get(), requests)) {
      num_preemptions += got.num_preemptions;
      rounds += got.stats.rounds;
      EXPECT_EQ(got.cached_tokens, 0);
    }
    EXPECT_GT(num_preemptions, 0);
    EXPECT_EQ(rounds, 3 * 40);
    return engine->load().prefix_hits;
  };
  EXPECT_EQ(read_again(false), 0);
  EXPECT_GT(read_again(true), 10);
}

// Four requests with the same prompt run together in a cache that holds the prompt once and four
// answers.
TEST(Engine, SequencesOfOnePromptShareItsPages) {
  const GoldenPair pair("shallow");
  constexpr int kSequences = 4;
  Request request = {.max_tokens = 10, .seed = 5, .ignore_eos = true, .draft_tokens = 2};
  for (int i = 0; i < 33; ++i) request.prompt_ids.push_back(pair.output_ids[i]);
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.prefix_cache = false;
  options.page_size = 4;
  std::vector<Completion> alone;
  for (int i = 0; i < kSequences; ++i) {
    request.sequence = i;
    alone.push_back(Generate(MakeEngine(options).get(), request));
  }
  options.prefix_cache = true;
  // The prompt has 8 full pages, and each sequence needs 3 more.
  options.kv_memory_bytes = KvBytesFor(pair.target, pair.draft, (8 + kSequences * 3) * 4);
  options.callback_thread = CallbackThread::kEngine;  // which then waits with the callbacks
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  absl::Notification all_are_there;
  std::vector<int> pieces_by;
  std::vector<GenerationId> ids;
  for (int i = 0; i < kSequences; ++i) {
    request.sequence = i;
    const auto id = engine->Submit(request, [&, i](const Piece&) {
      all_are_there.WaitForNotification();
      pieces_by.push_back(i);
      return true;
    });
    ASSERT_TRUE(id.ok()) << id.status();
    ids.push_back(*id);
  }
  all_are_there.Notify();
  for (int i = 0; i < kSequences; ++i) {
    const auto got = engine->Wait(ids[i]);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSameOutput(*got, alone[i]);
    EXPECT_EQ(got->num_preemptions, 0);
    // The second request can arrive in time to read the prompt with the first.
    if (i != 1) {
      EXPECT_EQ(got->cached_tokens, i == 0 ? 0 : 32);
    }
  }
  const auto last_of_first = std::find(pieces_by.rbegin(), pieces_by.rend(), 0);
  const auto first_of_last = std::find(pieces_by.begin(), pieces_by.end(), kSequences - 1);
  EXPECT_LT(first_of_last - pieces_by.begin(), pieces_by.rend() - last_of_first - 1);
  EXPECT_GT(engine->load().draft_prefix_hits, 0);
}

// The pages of a prompt that was cancelled half way stay in the cache. The pieces of the other
// request show its progress: 3 tokens per round, in pages of 2.
TEST(Engine, KeepsThePagesOfACancelledPrompt) {
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.page_size = 2;
  options.chunk_tokens = 4;
  options.callback_thread = CallbackThread::kEngine;  // which then waits with the callback
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request prompt = {
      .prompt_ids = pair.output_ids, .max_tokens = 1, .sampling = kGreedy, .draft_tokens = 0};
  absl::Notification both_are_there, is_half_read, is_cancelled;
  int num_pieces = 0;
  const auto other = engine->Submit({.prompt_ids = {1},
                                     .max_tokens = 20,
                                     .sampling = kGreedy,
                                     .ignore_eos = true,
                                     .draft_tokens = 0},
                                    [&](const Piece&) {
                                      if (++num_pieces == 1) {
                                        both_are_there.WaitForNotification();
                                      } else if (num_pieces == 9) {
                                        is_half_read.Notify();
                                        is_cancelled.WaitForNotification();
                                      }
                                      return true;
                                    });
  ASSERT_TRUE(other.ok());
  const auto id = engine->Submit(prompt, nullptr);
  ASSERT_TRUE(id.ok());
  both_are_there.Notify();
  is_half_read.WaitForNotification();
  engine->Cancel(*id);
  is_cancelled.Notify();
  EXPECT_EQ(engine->Wait(*id)->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(engine->Wait(*other)->finish_reason, FinishReason::kLength);
  // In the last round the other request's piece comes before the prompt's pages are published.
  const Completion again = Generate(engine.get(), prompt);
  EXPECT_GE(again.cached_tokens, 7 * 3 / 2 * 2);
  EXPECT_LE(again.cached_tokens, 9 * 3 / 2 * 2);
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
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.max_batch = 1;
  const std::vector<Completion> alone = GenerateAll(MakeEngine(options).get(), requests);
  options.max_batch = 8;
  const std::vector<Completion> together = GenerateAll(MakeEngine(options).get(), requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSameOutput(together[i], alone[i]);
    ExpectSameCounts(together[i].stats, alone[i].stats);
  }
}

// There is room for the longest generation and a little more, so the others are preempted
// repeatedly.
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
        options.kv_memory_bytes = KvBytesFor(pair.target, draft, 64);
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
        // No page was lost: the same request can run again.
        ExpectSameOutput(Generate(engine.get(), requests[7]), want[7]);
      }
    }
  }
}

// ---- A draft that is the target ----

// Holes and wrong entries in the draft's cache do not show in the output, but they show in
// acceptance.
TEST(Engine, ADraftThatIsTheTargetIsAlwaysAccepted) {
  const std::string model = GoldenModelPath("llama-rope3");
  EngineOptions options = DraftModelOptionsFor(model, model);
  options.page_size = 4;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  for (const AcceptanceRule verifier : kAllRules) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const int k : {1, 4, 7}) {
        SCOPED_TRACE(absl::StrCat(View(NameOf(verifier)), " temperature ", temperature, " k ", k));
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

// ---- Log-probabilities ----

TEST(Engine, LogprobsEqualThoseOfOnePassOverTheText) {
  const GoldenPair pair("shallow");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, pair.draft));
  for (const AcceptanceRule verifier : kAllRules) {
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
      // The row of token i is at index i - 1.
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

TEST(Engine, ProcessedLogprobsDescribeTheSampledDistribution) {
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
      // In the second run a prefix hit would skip rows that must be reported.
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

}  // namespace
}  // namespace tandem
