// What happens where memory runs out: each allocation of loading, of the cache and of a round fails
// once. It must come to whoever called, as std::bad_alloc or a status, and leave everything that
// outlives the call whole: every page counted, and the next attempt like the first.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "draft/make_drafter.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tandem/tokenizer.h"
#include "tests/allocation/failing_new.h"
#include "tests/golden_file.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

// ---- The check itself ----

// Row 100 of the bug catalogue, here and below.
TEST(FailEachAllocation, FailsEachOnce) {
  const auto attempt = [] {
    auto one = std::make_unique<int>(1);
    auto two = std::make_unique<std::vector<int>>(5);
    EXPECT_NE(one.get(), two->data());
    return absl::OkStatus();
  };
  int num_checks = 0;
  EXPECT_EQ(FailEachAllocation(attempt, [&] { ++num_checks; }), 3);
  EXPECT_EQ(num_checks, 3);
}

// A cache that takes a page before what may fail would lose it.
TEST(FailEachAllocation, SeesAPageThatIsLost) {
  PagePool pool(4);
  std::vector<PageId> held;
  const auto attempt = [&] {
    const PageId page = pool.Take();
    auto fails = std::make_unique<int>(page);
    pool.Unref(*fails);
    return absl::OkStatus();
  };
  EXPECT_TRUE(TryWithFailure(0, attempt).has_thrown);
  EXPECT_EQ(pool.num_free(), 3);
}

TEST(FailEachAllocation, ReachesEveryThread) {
  ThreadPool pool(3);
  std::atomic<int> num_done{0};
  const auto attempt = [&] {
    pool.Run([&](int t) {
      const std::vector<int> some(100 + t, t);
      num_done += static_cast<int>(some.size()) > 0 ? 1 : 0;
    });
    return absl::OkStatus();
  };
  EXPECT_EQ(FailEachAllocation(attempt, [] {}), 3);
  EXPECT_EQ(num_done, 3 + 3 * 2 + 3);
}

TEST(AllocationFailure, OfThreadsLeavesNone) {
  FailEachAllocation(
      [] {
        ThreadPool pool(4);
        return pool.num_threads() == 4 ? absl::OkStatus() : absl::InternalError("too few");
      },
      [] {});
}

// ---- The cache ----

std::vector<TokenId> Text(int first, int count) {
  std::vector<TokenId> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = first + i;
  return tokens;
}

TEST(AllocationFailure, OfTheCacheLosesNoPage) {
  FakeCache cache(4, 64);
  const auto attempt = [&]() -> absl::Status {
    KvSequence first = cache->NewSequence();
    RETURN_IF_ERROR(first.Extend(21));
    cache->Publish(Text(0, 21), &first);
    KvSequence second = cache->NewSequenceWithPrefix(Text(0, 20));
    RETURN_IF_ERROR(second.Extend(9));
    KvSequence fork = second.Fork();
    RETURN_IF_ERROR(fork.Extend(3));
    second.Truncate(6);
    RETURN_IF_ERROR(second.Extend(200));  // evicts
    cache->Publish(Text(0, 206), &second);
    return absl::OkStatus();
  };
  EXPECT_GT(FailEachAllocation(attempt,
                               [&] {
                                 const absl::Status status = cache->CheckIntegrity({});
                                 EXPECT_TRUE(status.ok()) << status;
                                 EXPECT_EQ(cache->num_available_pages(), 64);
                               }),
            20);
  FailEachAllocation(
      [&] {
        cache->ClearPrefixes();
        return cache->CheckIntegrity({});
      },
      [] {});
}

// What fails leaves the sequence as it was.
TEST(AllocationFailure, OfExtendChangesNothing) {
  FakeCache cache(4, 64);
  KvSequence sequence = cache->NewSequence();
  ASSERT_TRUE(sequence.Extend(6).ok());
  const KvSequence fork = sequence.Fork();
  EXPECT_TRUE(TryWithFailure(0, [&] { return sequence.Extend(50); }).has_thrown);
  EXPECT_EQ(sequence.length(), 6);
  const KvSequence* const both[] = {&sequence, &fork};
  const absl::Status status = cache->CheckIntegrity(both);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(cache->num_free_pages(), 62);
}

// ---- Rounds ----

Ask RoundAsk() {
  return {.prompt = {3, 1, 4, 1, 5, 2, 6},
          .max_tokens = 12,
          .sampling = {.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1.2f},
          .seed = 5,
          .logprobs = {.num_top = 2}};
}

void ExpectWhole(RoundModels& models) {
  const absl::Status target = models.target_cache->CheckIntegrity({});
  EXPECT_TRUE(target.ok()) << target;
  const absl::Status draft = models.drafter.CheckIntegrity();
  EXPECT_TRUE(draft.ok()) << draft;
}

// Two generations, whose rounds end with a round's part of publishing.
absl::Status GenerateTwo(RoundModels* models, Drafter* drafter, std::vector<Tokens>* outputs) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 2; ++i) sessions.push_back(Start(models, drafter, RoundAsk()));
  for (int round = 0; !sessions[0]->finished || !sessions[1]->finished; ++round) {
    std::vector<RoundStep> steps;
    for (const auto& s : sessions) {
      if (s->finished) continue;
      steps.push_back({.session = s.get(),
                       .num_fed = s->num_pending(),
                       .granted = std::min(round % 4, s->DraftRoom())});
    }
    RETURN_IF_ERROR(models->Round(drafter, steps));
    for (const RoundStep& step : steps) {
      models->target_cache->Publish(step.session->tokens, &step.session->target_kv);
      drafter->Publish(step.session->draft_state.get(), step.session->tokens);
    }
  }
  outputs->clear();
  for (const auto& s : sessions) {
    if (!s->status.ok()) return s->status;
    outputs->push_back(s->tokens);
  }
  return absl::OkStatus();
}

TEST(AllocationFailure, OfARoundEndsItsGenerationsAndNoOthers) {
  RoundModels models({.num_pages = 60});
  const Tokens expected = Plain(RoundAsk(), &models)->tokens;
  const auto lookups = MakeDrafter(DrafterKind::kNgram, {});
  ASSERT_TRUE(lookups.ok()) << lookups.status();
  for (Drafter* drafter : {static_cast<Drafter*>(&models.drafter), lookups->get()}) {
    std::vector<Tokens> outputs;
    const auto attempt = [&] { return GenerateTwo(&models, drafter, &outputs); };
    const int num_failed = FailEachAllocation(attempt, [&] {
      ExpectWhole(models);
      models.target.passes().clear();
      models.draft.passes().clear();
    });
    EXPECT_GT(num_failed, 100) << drafter->name();
    EXPECT_EQ(outputs, (std::vector<Tokens>{expected, expected})) << drafter->name();
  }
}

// ---- Loading, and passes on several threads ----

TEST(AllocationFailure, OfLoadingATokenizerIsToldToItsCaller) {
  for (const char* name : {"llama-gqa", "qwen2-bias"}) {
    const std::string folder = GoldenModelPath(name);
    std::vector<TokenId> ids;
    const auto attempt = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(folder));
      ASSIGN_OR_RETURN(ids, tokenizer->Encode("Once upon a time, 12.", SpecialTokens::kParse));
      return absl::OkStatus();
    };
    EXPECT_GT(FailEachAllocation(
                  attempt, [] {}, /*max_failures=*/200),
              100)
        << name;
    const auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_EQ(ids, *(*tokenizer)->Encode("Once upon a time, 12.", SpecialTokens::kParse));
  }
}

// A pass, too: its first one packs weights, on every thread.
TEST(AllocationFailure, OfLoadingAModelIsToldToItsCaller) {
  const std::string folder = GoldenModelPath("llama-gqa");
  const std::vector<TokenId> tokens = {5, 9, 17, 3, 8};
  std::vector<float> logits;
  const auto attempt = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const auto backend, MakeCpuBackend({.num_threads = 3}));
    ASSIGN_OR_RETURN(const auto model, Transformer::Load(folder, backend.get()));
    ASSIGN_OR_RETURN(const auto cache, PagedKvCache::Create(backend.get(), model->kv_layout(4), 8));
    KvSequence kv = cache->NewSequence();
    const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 1};
    ASSIGN_OR_RETURN(const MatrixView rows, model->Forward({&request, 1}));
    const auto* first = static_cast<const float*>(rows.data);
    logits.assign(first, first + rows.cols);
    return absl::OkStatus();
  };
  EXPECT_GT(FailEachAllocation(
                attempt, [] {}, /*max_failures=*/300),
            200);
  const std::vector<float> after_failures = std::exchange(logits, {});
  ASSERT_TRUE(attempt().ok());
  ASSERT_EQ(after_failures.size(), logits.size());
  EXPECT_EQ(std::memcmp(after_failures.data(), logits.data(), logits.size() * sizeof(float)), 0);
}

// A pass that fails, again and again, on a model that stays: its weights are packed whole.
TEST(AllocationFailure, OfAPassLeavesTheModelWhole) {
  const auto backend = *MakeCpuBackend({.num_threads = 3});
  const std::string folder = GoldenModelPath("llama-gqa");
  const auto model = *Transformer::Load(folder, backend.get());
  const auto cache = *PagedKvCache::Create(backend.get(), model->kv_layout(4), 8);
  const std::vector<TokenId> tokens = {5, 9, 17, 3, 8};
  const auto pass = [&](Transformer& of, std::vector<float>* logits) -> absl::Status {
    KvSequence kv = cache->NewSequence();
    const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 1};
    ASSIGN_OR_RETURN(const MatrixView rows, of.Forward({&request, 1}));
    const auto* first = static_cast<const float*>(rows.data);
    logits->assign(first, first + rows.cols);
    return absl::OkStatus();
  };
  std::vector<float> logits;
  int64_t failing = 0;
  while (!TryWithFailure(failing, [&] { return pass(*model, &logits); }).ok()) {
    const absl::Status status = cache->CheckIntegrity({});
    ASSERT_TRUE(status.ok()) << status;
    ++failing;
  }
  EXPECT_GT(failing, 5);
  std::vector<float> expected;
  const auto undisturbed = *Transformer::Load(folder, backend.get());
  ASSERT_TRUE(pass(*undisturbed, &expected).ok());
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
}

// ---- The engine ----

// Every generation ends, with its result or a status, and the engine goes on.
TEST(AllocationFailure, OfAGenerationIsNobodyElses) {
  EngineOptions options{.target = GoldenModelPath("llama-gqa"),
                        .draft = GoldenModelPath("llama-gqa"),
                        .drafter = DrafterKind::kModel,
                        .threads = 2,
                        .kv_memory_bytes = 1 << 20};
  options.max_batch = 2;
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Request request{.prompt_ids = {5, 9, 17, 3, 8},
                        .max_tokens = 6,
                        .seed = 3,
                        .stop = {"zz"},
                        .ignore_eos = true,
                        .draft_tokens = 2};
  const auto alone = (*engine)->Generate(request);
  ASSERT_TRUE(alone.ok()) << alone.status();
  std::vector<TokenId> output;
  const auto attempt = [&]() -> absl::Status {
    const auto first = (*engine)->Submit(request, [](const Piece&) { return true; });
    const auto second = (*engine)->Submit(request, nullptr);
    absl::Status status;
    for (const auto* id : {&first, &second}) {
      status.Update(id->status());
      if (!id->ok()) continue;
      const absl::StatusOr<Completion> got = (*engine)->Wait(**id);
      status.Update(got.status());
      if (got.ok()) output = got->token_ids;
    }
    return status;
  };
  const int num_failed = FailEachAllocation(
      attempt,
      [&] {
        const absl::Status status = (*engine)->CheckIntegrity();
        EXPECT_TRUE(status.ok()) << status;
      },
      /*max_failures=*/400);
  EXPECT_GT(num_failed, 100);
  EXPECT_EQ(output, alone->token_ids);
}

}  // namespace
}  // namespace tandem
