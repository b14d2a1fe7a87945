// The engine as its callers see it: pieces, cancelling, threads, counts and refusals.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

// ---- Streaming, cancelling, threads ----

TEST(Engine, JoinedPiecesEqualTheCompletion) {
  EngineOptions options =
      CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  options.callback_thread = CallbackThread::kEngine;  // one piece per round
  const std::unique_ptr<Engine> engine = MakeEngine(options);
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
    EXPECT_EQ(got->finish_reason, stop.empty() ? FinishReason::kLength : FinishReason::kStop);
  }
}

TEST(Engine, ACallbackCanEndItsGeneration) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.callback_thread = CallbackThread::kEngine;  // so that no further round runs
  const std::unique_ptr<Engine> engine = MakeEngine(options);
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
    EXPECT_EQ(got->finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(seen, rounds);
    EXPECT_EQ(got->token_ids, ids);
    EXPECT_EQ(got->stats.rounds, rounds);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), pair.output_ids.begin()));
  }
}

TEST(Engine, CancelEndsRunningAndWaitingRequests) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.max_batch = 1;
  options.callback_thread = CallbackThread::kEngine;  // which then waits with the callback
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
  EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled->stats.rounds, 1);
  EXPECT_FALSE(cancelled->token_ids.empty());
  const auto never_run = engine->Wait(*waiting);
  ASSERT_TRUE(never_run.ok()) << never_run.status();
  EXPECT_EQ(never_run->finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(never_run->token_ids.empty());
  EXPECT_FALSE(waiting_was_called);
  const auto whole = engine->Wait(*unharmed);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->token_ids, pair.output_ids);
  engine->Cancel(*unharmed);  // ended already
}

// Pages run out while two generations run. Whichever round the older one is cancelled in, its pages
// are free when the next round is planned.
TEST(Engine, ACancelledGenerationFreesItsPages) {
  constexpr int kTokens = 24;
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, "");
  options.prefix_cache = false;
  options.page_size = 4;
  const int length = static_cast<int>(pair.prompt_ids.size()) + kTokens;
  options.kv_memory_bytes = KvBytesFor(pair.target, "", length + length / 2);
  options.callback_thread = CallbackThread::kEngine;  // which then waits with the callback
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request request{.prompt_ids = pair.prompt_ids,
                        .max_tokens = kTokens,
                        .sampling = kGreedy,
                        .ignore_eos = true,
                        .draft_tokens = 0};  // one token per round
  const Completion alone = Generate(engine.get(), request);
  for (int last = 1; last < kTokens; ++last) {
    SCOPED_TRACE(last);
    absl::Notification is_last;
    absl::Notification may_go_on;
    const auto older = engine->Submit(request, [&, left = last](const Piece&) mutable {
      if (--left == 0) {
        is_last.Notify();
        may_go_on.WaitForNotification();
      }
      return true;
    });
    ASSERT_TRUE(older.ok()) << older.status();
    const auto younger = engine->Submit(request, nullptr);
    ASSERT_TRUE(younger.ok()) << younger.status();
    is_last.WaitForNotification();
    engine->Cancel(*older);
    may_go_on.Notify();
    const auto cancelled = engine->Wait(*older);
    ASSERT_TRUE(cancelled.ok()) << cancelled.status();
    EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
    const auto whole = engine->Wait(*younger);
    ASSERT_TRUE(whole.ok()) << whole.status();
    ExpectSameOutput(*whole, alone);
  }
}

TEST(Engine, EveryGenerationCanBeWaitedForOnce) {
  const GoldenPair pair("perturbed");
  const std::unique_ptr<Engine> engine = MakeEngine(CpuOptionsFor(pair.target, ""));
  EXPECT_EQ(engine->Wait(1).status().code(), absl::StatusCode::kNotFound);
  const auto id = engine->Submit({.prompt_ids = {1, 2}, .max_tokens = 2}, nullptr);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(engine->Wait(*id).ok());
  EXPECT_EQ(engine->Wait(*id).status().code(), absl::StatusCode::kNotFound);
}

TEST(Engine, CanBeDestroyedWithWorkInFlight) {
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
    // No callback runs after the engine is destroyed.
    const int calls_at_the_end = calls;
    std::this_thread::yield();
    EXPECT_EQ(calls, calls_at_the_end);
  }
}

TEST(Engine, ManyThreadsCanSubmitAtOnce) {
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
    const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                   .max_tokens = 30,
                                                   .draft_tokens = k,
                                                   .verifier = AcceptanceRule::kBlock});
    EXPECT_EQ(got.draft_tokens, k);
    EXPECT_GT(got.timings.end_to_end, absl::ZeroDuration());
    EXPECT_GE(got.timings.end_to_end, got.timings.time_to_first_token);
    EXPECT_GT(got.timings.prompt, absl::ZeroDuration());
    EXPECT_GT(got.timings.other(), absl::ZeroDuration());
    sum += got.stats;
  }
  ExpectSameCounts(engine->stats(), sum);
}

// ---- Refusals ----

void ExpectRefused(const absl::Status& status, const std::string& field,
                   const std::string& given = "") {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(field), HasSubstr(given)));
}

TEST(Engine, RefusesInvalidRequests) {
  const GoldenPair pair("perturbed");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Request good{.prompt_ids = {1, 2, 3}, .max_tokens = 4, .ignore_eos = true};
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
  ExpectRefused(refusal([](Request& r) { r.max_tokens = -5; }), "max_tokens", "-5");
  ExpectRefused(refusal([](Request& r) { r.sampling.min_tokens = -1; }), "min_tokens", "-1");
  ExpectRefused(refusal([](Request& r) { r.sampling.min_tokens = 5; }), "min_tokens", "5");
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
  options.kv_memory_bytes = KvBytesFor(pair.target, "", 20);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  Request request{.prompt_ids = std::vector<TokenId>(10, 3), .max_tokens = 10, .ignore_eos = true};
  EXPECT_EQ(Generate(engine.get(), request).token_ids.size(), 10u);
  request.max_tokens = 11;
  ExpectRefused(engine->Submit(request, nullptr).status(), "max_tokens", "kv_memory");
}

TEST(Engine, RefusesInvalidOptions) {
  const GoldenPair pair("perturbed");
  const EngineOptions good = CpuOptionsFor(pair.target, pair.draft);
  const auto refusal = [&](auto change) {
    EngineOptions options = good;
    change(options);
    return Engine::Create(options).status();
  };
  ExpectRefused(refusal([](EngineOptions& o) { o.target = ""; }), "target");
  ExpectRefused(refusal([](EngineOptions& o) {
                  o.draft = "";
                  o.drafter = DrafterKind::kModel;
                }),
                "drafter", "model");
  ExpectRefused(refusal([](EngineOptions& o) { o.draft_tokens = 33; }), "draft_tokens", "33");
  ExpectRefused(refusal([](EngineOptions& o) { o.draft_tokens = -2; }), "draft_tokens", "-2");
  ExpectRefused(refusal([](EngineOptions& o) { o.device = "foo"; }), "device", "foo");
  ExpectRefused(refusal([](EngineOptions& o) { o.quantize = Quantization::kAuto; }), "quantize",
                "auto");
  // Which of the two errors comes depends on whether the CPU has bf16 dot products. The weights are
  // not bf16.
  EXPECT_THAT(
      std::string(refusal([](EngineOptions& o) { o.compute = CpuCompute::kBF16; }).message()),
      AnyOf(HasSubstr("compute: bf16 needs bfloat16 weights"), HasSubstr("bf16 dot product")));
  ExpectRefused(refusal([](EngineOptions& o) { o.threads = -1; }), "threads", "-1");
  ExpectRefused(refusal([](EngineOptions& o) { o.page_size = 0; }), "page_size", "0");
  ExpectRefused(refusal([](EngineOptions& o) { o.max_batch = 0; }), "max_batch", "0");
  ExpectRefused(refusal([](EngineOptions& o) { o.chunk_tokens = -1; }), "chunk_tokens", "-1");
  // Without limits, sums and products of these values would overflow.
  constexpr int kLargest = std::numeric_limits<int>::max();
  const std::string largest = absl::StrCat(kLargest);
  ExpectRefused(refusal([](EngineOptions& o) { o.threads = kLargest; }), "threads", largest);
  ExpectRefused(refusal([](EngineOptions& o) { o.page_size = kLargest; }), "page_size", largest);
  ExpectRefused(refusal([](EngineOptions& o) { o.page_size = 4097; }), "page_size", "4096");
  ExpectRefused(refusal([](EngineOptions& o) { o.max_batch = kLargest; }), "max_batch", largest);
  ExpectRefused(refusal([](EngineOptions& o) { o.chunk_tokens = kLargest; }), "chunk_tokens",
                largest);
  ExpectRefused(refusal([](EngineOptions& o) { o.kv_memory_bytes = -1; }), "kv_memory", "-1");
  ExpectRefused(refusal([](EngineOptions& o) { o.kv_memory_bytes = 1; }), "kv_memory", "1");
  EXPECT_EQ(refusal([](EngineOptions& o) { o.target += "-no"; }).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(refusal([](EngineOptions& o) { o.draft += "-no"; }).code(),
            absl::StatusCode::kNotFound);
}

TEST(Engine, AcceptsTheSameTokenizerInAnotherFormat) {
  const GoldenPair pair("perturbed");
  const ModelCopy reformatted(pair.draft);
  reformatted.Write("tokenizer.json", reformatted.ReadJson("tokenizer.json").dump(2) + "\n");
  EXPECT_TRUE(Engine::Create(CpuOptionsFor(pair.target, reformatted.path())).ok());
}

TEST(Engine, AcceptsPromptsAsTextAndAsIds) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(CpuOptionsFor(GoldenModelPath("llama-gqa"), ""));
  const auto ids = engine->tokenizer().Encode("Once upon a time", SpecialTokens::kParse);
  ASSERT_TRUE(ids.ok()) << ids.status();
  const Request by_text{.prompt = "Once upon a time", .max_tokens = 8, .sampling = kGreedy};
  Request by_ids = by_text;
  by_ids.prompt = "";
  by_ids.prompt_ids = engine->tokenizer().WithTemplate(*ids);
  EXPECT_EQ(by_ids.prompt_ids.size(), ids->size() + 1);  // this model's template adds <s>
  ExpectSameOutput(Generate(engine.get(), by_text), Generate(engine.get(), by_ids));
}

TEST(Engine, ReportsItsModels) {
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_EQ(engine->drafter(), DrafterKind::kModelAndNgram);
  EXPECT_EQ(engine->target_info().family, "qwen3");
  EXPECT_EQ(engine->target_info().path, pair.target);
  EXPECT_EQ(engine->target_info().dtype, "float32");
  // 3 layers of keys and values for 2 heads of 16 floats.
  EXPECT_EQ(engine->target_info().kv_bytes_per_token, 3 * 2 * 2 * 16 * 4);
  for (const auto& [kv_cache, row_bytes] :
       {std::pair(KvCacheType::kBF16, 16 * 2), {KvCacheType::kInt8, 16 + 4}}) {
    EngineOptions other = options;
    other.kv_cache = kv_cache;
    EXPECT_EQ(MakeEngine(other)->target_info().kv_bytes_per_token, 3 * 2 * 2 * row_bytes);
  }
  EXPECT_EQ(engine->draft_info()->path, pair.draft);
  EXPECT_EQ(engine->draft_info()->vocab_size, 288);
  options.drafter = DrafterKind::kNone;
  const std::unique_ptr<Engine> plain = MakeEngine(options);
  EXPECT_EQ(plain->drafter(), DrafterKind::kNone);
  EXPECT_FALSE(plain->draft_info().has_value());
  const Completion got =
      Generate(plain.get(), {.prompt_ids = {1}, .max_tokens = 3, .ignore_eos = true});
  EXPECT_EQ(got.draft_tokens, 0);
  EXPECT_EQ(got.provenance, "ppp");
}

}  // namespace
}  // namespace tandem
