// Engines whose draft is a head. Its layer is stored in the target's pages and moves with them.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log_testing.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/head_folder.h"
#include "tests/store_world.h"
#include "text/constraint/grammar_engine.h"
#include "tools/checkpoints/quantized_model.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int kTextTokens = 100;
constexpr int kPageSize = 4;

std::string Target() { return ShippedModelPath("storyteller-1m"); }

// The parameter is whether the head has the one-layer form.
class EngineHead : public testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() {
    texts_ = std::make_unique<std::vector<std::vector<TokenId>>>(TextsOf(
        Target(), {"Once upon a time", "There was a little boy named Tim", "The sun was warm and"},
        kTextTokens));
    for (const bool is_one_layer : {false, true}) {
      heads_[is_one_layer ? 1 : 0] = std::make_unique<HeadFolder>(
          Target(), *texts_, HeadFolder::Form{.is_one_layer = is_one_layer});
    }
  }
  static void TearDownTestSuite() {
    texts_ = nullptr;
    for (auto& head : heads_) head = nullptr;
  }

  // Options with which only the head drafts.
  static EngineOptions Options() {
    EngineOptions options = CpuOptionsFor(Target(), heads_[GetParam() ? 1 : 0]->path());
    options.drafter = DrafterKind::kHead;
    options.page_size = kPageSize;
    return options;
  }
  static EngineOptions PlainOptions() {
    EngineOptions options = CpuOptionsFor(Target(), "");
    options.drafter = DrafterKind::kNone;
    options.prefix_cache = false;
    options.max_batch = 1;
    return options;
  }
  // Returns the first `length` tokens of a text.
  static std::vector<TokenId> Prompt(int text, int length) {
    const std::vector<TokenId>& tokens = (*texts_)[text];
    return {tokens.begin(), tokens.begin() + length};
  }
  static Request Greedy(std::vector<TokenId> prompt, int max_tokens = 24) {
    Request request = RequestFor(std::move(prompt));
    request.max_tokens = max_tokens;
    return request;
  }
  // Returns alternately greedy and seeded requests whose prompts share prefixes.
  static std::vector<Request> Mixed(int max_tokens = 24) {
    std::vector<std::vector<TokenId>> prompts;
    for (const int length : {5, 8, 9, 17, 20, 33}) prompts.push_back(Prompt(0, length));
    return PlainRequests(prompts, max_tokens);
  }
  static std::vector<Request> Drafted(std::vector<Request> requests, int draft_tokens) {
    for (Request& request : requests) request.draft_tokens = draft_tokens;
    return requests;
  }
  // Returns the completion that follows a prefix hit of all whole pages, from an engine without a
  // prefix cache. It reads these pages in one pass, because a pass that reads the last token alone
  // can draft.
  static Completion WithPagesFound(EngineOptions options, const Request& request) {
    options.prefix_cache = false;
    options.chunk_tokens =
        std::max(1, WholePages(static_cast<int>(request.prompt_ids.size()), kPageSize));
    return Generate(MakeEngine(options).get(), request);
  }
  static int64_t ExpectSameOutputs(const std::vector<Completion>& got,
                                   const std::vector<Completion>& want) {
    int64_t accepted = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("request ", i));
      ExpectSameOutput(got[i], want[i]);
      ExpectConsistent(got[i]);
      accepted += got[i].stats.accepted;
    }
    return accepted;
  }
  static void ExpectSame(const Completion& got, const Completion& want) {
    ExpectSameOutput(got, want);
    ExpectSameCounts(got.stats, want.stats);
  }

  static inline std::unique_ptr<std::vector<std::vector<TokenId>>> texts_;
  static inline std::unique_ptr<HeadFolder> heads_[2];
};

INSTANTIATE_TEST_SUITE_P(Forms, EngineHead, testing::Bool(),
                         [](const auto& info) { return info.param ? "OneLayer" : "Eagle3"; });

// The other cases compare counts of accepted tokens, which must not be zero.
TEST_P(EngineHead, AcceptsManyTokensInItsTexts) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  RoundStats stats;
  for (int text = 0; text < 3; ++text) {
    stats += Generate(engine.get(), Greedy(Prompt(text, 12), 60)).stats;
  }
  EXPECT_GT(stats.AcceptanceAt(0), 0.3);
  EXPECT_GT(stats.accepted_at[1], 0);
  EXPECT_LT(stats.accepted, stats.proposed);
}

TEST_P(EngineHead, WritesThePlainTextAtEveryDraftLength) {
  const std::vector<Request> requests = Mixed();
  const auto plain = GenerateAll(MakeEngine(PlainOptions()).get(), requests);
  for (const int max_batch : {1, 4}) {
    EngineOptions options = Options();
    options.max_batch = max_batch;
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    for (const int k : {1, 2, 3, 4, 5, 6, 7, 8, kAutoDraftTokens}) {
      SCOPED_TRACE(absl::StrCat("batch ", max_batch, " k ", k));
      const auto got = GenerateAll(engine.get(), Drafted(requests, k));
      const int64_t accepted = ExpectSameOutputs(got, plain);
      EXPECT_TRUE(accepted > 0 || k == kAutoDraftTokens);
    }
    EXPECT_TRUE(engine->CheckIntegrity().ok());
  }
}

TEST_P(EngineHead, WritesThePlainTextByEveryRuleAndWithLookup) {
  std::vector<Request> requests;
  for (int text = 0; text < 3; ++text) requests.push_back(Greedy(Prompt(text, 14)));
  const auto plain = GenerateAll(MakeEngine(PlainOptions()).get(), Drafted(requests, 0));
  EngineOptions options = Options();
  options.all_drafters = true;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  EXPECT_THAT(engine->drafters(), testing::ElementsAre(DrafterKind::kHead, DrafterKind::kNgram,
                                                       DrafterKind::kHeadAndNgram));
  for (const AcceptanceRule rule : kAllRules) {
    for (const DrafterKind drafter : engine->drafters()) {
      SCOPED_TRACE(absl::StrCat(View(NameOf(rule)), " ", View(NameOf(drafter))));
      for (Request& request : requests) {
        request.verifier = rule;
        request.drafter = drafter;
      }
      const int64_t accepted = ExpectSameOutputs(GenerateAll(engine.get(), requests), plain);
      EXPECT_TRUE(accepted > 0 || drafter == DrafterKind::kNgram);
    }
  }
}

TEST_P(EngineHead, SatisfiesAConstraint) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  std::vector<Request> requests;
  for (const bool is_seeded : {false, true}) {
    Request request = Greedy(Prompt(0, 12));
    request.constraint = OutputConstraint{.kind = OutputConstraint::Kind::kRegex,
                                          .text = "( (she|he|they|saw|was|[a-z]{1,7})){5,9}\\."};
    request.ignore_eos = false;
    if (is_seeded) request.sampling = {.temperature = 0.9f};
    request.seed = 5;
    request.verifier = AcceptanceRule::kExactMatch;
    requests.push_back(request);
  }
  const auto plain = GenerateAll(MakeEngine(PlainOptions()).get(), Drafted(requests, 0));
  const auto got = GenerateAll(MakeEngine(Options()).get(), requests);
  ExpectSameOutputs(got, plain);
  EXPECT_GT(got[0].stats.proposed, 0);
}

// With caches of every type and chunks of every size, the text and the proposals are the same.
TEST_P(EngineHead, ProposesTheSameInEveryChunking) {
  for (const KvCacheType kv_cache : kCacheTypes) {
    EngineOptions plain_options = PlainOptions();
    plain_options.kv_cache = kv_cache;
    const Request request = Greedy(Prompt(1, 62));
    const Completion plain =
        Generate(MakeEngine(plain_options).get(), Drafted({request}, 0).front());
    Completion first;
    for (const int chunk_tokens : {256, 1, 3, 4, 16, 60}) {
      SCOPED_TRACE(absl::StrCat(View(NameOf(kv_cache)), " in chunks of ", chunk_tokens));
      EngineOptions options = Options();
      options.kv_cache = kv_cache;
      options.chunk_tokens = chunk_tokens;
      const Completion got = Generate(MakeEngine(options).get(), request);
      ExpectSameOutput(got, plain);
      if (chunk_tokens == 256) first = got;
      ExpectSameCounts(got.stats, first.stats);
      EXPECT_GT(got.stats.accepted, 0);
    }
  }
}

// The pages of a prefix hit hold the head's layer, and the state before the first row after them.
TEST_P(EngineHead, ProposesTheSameAfterAPrefixHit) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  for (const int length : {41, 7, 8, 9, 24, 40, 44, 60}) {
    SCOPED_TRACE(absl::StrCat(length, " tokens"));
    const Request request = Greedy(Prompt(2, length));
    Generate(engine.get(), request);
    const Completion got = Generate(engine.get(), request);
    EXPECT_EQ(got.cached_tokens, WholePages(length, kPageSize));
    ExpectSame(got, WithPagesFound(Options(), request));
  }
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// Requests with drafts can use pages that a request without drafts published.
TEST_P(EngineHead, ReadsPromptsOfRequestsThatDoNotDraft) {
  EngineOptions options = Options();
  options.all_drafters = true;
  const Request request = Greedy(Prompt(0, 50));
  const Completion want = WithPagesFound(options, request);
  Request plain = Greedy(Prompt(0, 30), 40), looked_up = plain, scored = Greedy(Prompt(0, 52), 0);
  plain.drafter = DrafterKind::kNone;
  plain.draft_tokens = 0;
  looked_up.drafter = DrafterKind::kNgram;
  scored.drafter = DrafterKind::kNone;
  for (const Request& before : {plain, looked_up, scored}) {
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    Generate(engine.get(), before);
    const Completion got = Generate(engine.get(), request);
    EXPECT_EQ(got.cached_tokens, WholePages(50, kPageSize));
    ExpectSame(got, want);
  }
}

TEST_P(EngineHead, WritesThePlainTextWhenPagesAreFew) {
  const std::vector<Request> requests = Drafted(Mixed(40), 4);
  const auto plain = GenerateAll(MakeEngine(PlainOptions()).get(), Drafted(requests, 0));
  EngineOptions options = Options();
  options.max_batch = 4;
  options.kv_memory_bytes = 27 * KvBytesFor(Target(), options.draft, kPageSize);
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  int num_preemptions = 0;
  for (int time = 0; time < 2; ++time) {
    const auto got = GenerateAll(engine.get(), requests);
    EXPECT_GT(ExpectSameOutputs(got, plain), 0);
    for (const Completion& one : got) num_preemptions += one.num_preemptions;
  }
  EXPECT_GT(num_preemptions, 0);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

TEST_P(EngineHead, IsTheSameAfterARestart) {
  for (const KvCacheType kv_cache : kCacheTypes) {
    EngineOptions options = Options();
    options.kv_cache = kv_cache;
    StoreWorld world;
    for (const int length : {3, 4, 5, 33, 48}) {
      SCOPED_TRACE(absl::StrCat(View(NameOf(kv_cache)), ", ", length, " tokens"));
      std::vector<TokenId> prompt = Prompt(1, length);
      prompt[0] = 100 + length;
      const Request request = Greedy(prompt);
      Completion before, after;
      before = Generate(world.Start(options).get(), request);
      after = Generate(world.Start(options).get(), request);
      EXPECT_EQ(before.store_tokens, 0);
      EXPECT_EQ(after.store_tokens, WholePages(length, kPageSize));
      ExpectSame(before, Generate(MakeEngine(options).get(), request));
      ExpectSame(after, WithPagesFound(options, request));
    }
  }
}

// A head's layer is part of the pages, so an engine with another head or without a head cannot use
// them.
TEST_P(EngineHead, DoesNotShareStoredPagesWithAnotherHead) {
  const EngineOptions options = Options();
  const HeadFolder other_head(Target(), *texts_, {.is_one_layer = GetParam(), .seed = 2});
  EngineOptions other = options, without = options, quantized = options;
  other.draft = other_head.path();
  without.draft.clear();
  without.drafter = DrafterKind::kNone;
  quantized.draft_quantize = Quantization::kQ8_0;
  const Request request = Greedy(Prompt(0, 33));
  StoreWorld world;
  for (const int stored_tokens : {0, 32}) {
    for (const EngineOptions& one : {options, other, without, quantized}) {
      const Completion got = Generate(world.Start(one).get(), request);
      EXPECT_EQ(got.store_tokens, stored_tokens);
      ExpectSame(got, stored_tokens == 0 ? Generate(MakeEngine(one).get(), request)
                                         : WithPagesFound(one, request));
    }
  }
}

// Pages that another worker has read are used with the same head only.
TEST_P(EngineHead, TravelsWithThePagesOfItsTarget) {
  const FakeClock clock;
  EngineOptions options = Options();
  options.kv_transfer = "127.0.0.1:0";
  options.kv_transfer_secret = kTransferSecret;
  const HeadFolder other_head(Target(), *texts_, {.is_one_layer = GetParam(), .seed = 2});
  EngineOptions other = options;
  other.draft = other_head.path();
  const std::unique_ptr<Engine> prefill = MakeEngine(options);
  const std::unique_ptr<Engine> decode = MakeEngine(options);
  for (const int length : {3, 5, 33, 48}) {
    std::vector<TokenId> prompt = Prompt(2, length);
    prompt[0] = 100 + length;
    const Request request = Greedy(prompt);
    const Completion got = Generate(decode.get(), DecodeAfter(prefill.get(), request));
    EXPECT_EQ(got.transfer_tokens, WholePages(length, kPageSize));
    ExpectSame(got, WithPagesFound(Options(), request));
  }
  const Request request = Greedy(Prompt(2, 33));
  const Completion got = Generate(MakeEngine(other).get(), DecodeAfter(prefill.get(), request));
  EXPECT_EQ(got.transfer_tokens, 0);
  ExpectSame(got, Generate(MakeEngine(other).get(), request));
}

// The head's rows are whole blocks of 32 weights.
TEST_P(EngineHead, QuantisingAtLoadEqualsTheQuantisedFile) {
  const TestFolder folder;
  const std::string file = folder.Path("head.gguf");
  const absl::Status written =
      WriteQuantizedModel(Options().draft, DType::kQ8_0, file, [](int64_t, int64_t) {}).status();
  ASSERT_TRUE(written.ok()) << written;
  for (const CpuCompute compute : {CpuCompute::kAuto, CpuCompute::kF32}) {
    EngineOptions floats = Options();
    floats.compute = compute;
    EngineOptions at_load = floats, from_file = floats;
    at_load.draft_quantize = Quantization::kQ8_0;
    from_file.draft = file;
    RoundStats stats;
    const std::unique_ptr<Engine> engines[] = {MakeEngine(floats), MakeEngine(at_load),
                                               MakeEngine(from_file)};
    EXPECT_EQ(engines[1]->draft_info()->dtype, "q8_0");
    for (int text = 0; text < 3; ++text) {
      const Request request = Greedy(Prompt(text, 20), 60);
      const Completion want = Generate(engines[0].get(), request);
      const Completion got = Generate(engines[1].get(), request);
      ExpectSameOutput(got, want);
      ExpectSame(Generate(engines[2].get(), request), got);
      stats += got.stats;
    }
    EXPECT_GT(stats.AcceptanceAt(0), 0.3);
  }
  std::filesystem::remove(file);
}

// ---- Memory ----

TEST_P(EngineHead, MemoryIsReportedSeparatelyFromTheTarget) {
  EngineOptions options = Options();
  options.kv_memory_bytes = 1 << 20;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const ModelInfo target = engine->target_info();
  const ModelInfo head = *engine->draft_info();
  EXPECT_EQ(target.kv_bytes_per_token,
            MakeEngine(PlainOptions())->target_info().kv_bytes_per_token);
  // Keys and values of one head of 64, and a share of the page's state, which is one or three rows
  // of 128.
  const int state_bytes = (GetParam() ? 1 : 3) * 128 * 4;
  EXPECT_EQ(head.kv_bytes_per_token, 2 * 64 * 4 + state_bytes / kPageSize);
  EXPECT_EQ(head.num_pages, options.kv_memory_bytes / kPageSize /
                                (target.kv_bytes_per_token + head.kv_bytes_per_token));
  EXPECT_EQ(target.num_pages, head.num_pages);
  EXPECT_LT(head.bytes_read_per_pass, target.bytes_read_per_pass);
  EXPECT_GT(head.bytes_read_per_pass, 0);
}

TEST_P(EngineHead, IsPackedByTheWarmUp) {
  EngineOptions options = Options();
  options.kv_memory_bytes = 1 << 20;
  const auto cold = Runtime::Load(options);
  ASSERT_TRUE(cold.ok()) << cold.status();
  EXPECT_GT(cold->draft->num_unpacked(), 0);
  options.warm_up = true;
  const auto warm = Runtime::Load(options);
  ASSERT_TRUE(warm.ok()) << warm.status();
  EXPECT_EQ(warm->draft->num_unpacked(), 0);
  EXPECT_EQ(warm->target->num_unpacked(), 0);
  EXPECT_EQ(warm->target_cache->num_available_pages(), warm->target_cache->num_pages());
}

TEST_P(EngineHead, NeedsMemoryForItsPackedWeights) {
  EngineOptions options = Options();
  options.kv_memory_bytes = 1 << 20;
  const auto runtime = Runtime::Load(options);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto of_target = static_cast<int64_t>(runtime->target->bytes_to_pack());
  const auto of_head = static_cast<int64_t>(runtime->draft->bytes_to_pack());
  EXPECT_GT(of_head, 0);
  const int64_t cache_bytes = runtime->target_cache->num_pages() *
                              static_cast<int64_t>(runtime->target_cache->layout().page_bytes());
  const int64_t needed = of_target + of_head + cache_bytes;
  EXPECT_TRUE(Runtime::Load(options, needed).ok());
  EXPECT_THAT(std::string(Runtime::Load(options, needed - 1).status().message()),
              HasSubstr(absl::StrCat(cache_bytes, " bytes of key-value caches and ",
                                     of_target + of_head, " bytes of packed weights are needed")));
}

// ---- Refusals ----

std::string RefusalOf(const EngineOptions& options) {
  return std::string(Engine::Create(options).status().message());
}

TEST_P(EngineHead, RefusesOptionsOfDraftModels) {
  const auto with = [](auto change) {
    EngineOptions options = Options();
    change(&options);
    return RefusalOf(options);
  };
  const auto allows = [](const std::string& allowed) {
    return HasSubstr(
        absl::StrCat("allowed: ", allowed, ", because ", Options().draft, " is a draft head"));
  };
  EXPECT_THAT(with([](EngineOptions* o) { o->draft_window = 64; }),
              AllOf(HasSubstr("draft_window: found 64"), allows("auto and 0")));
  EXPECT_THAT(with([](EngineOptions* o) { o->draft_head_tokens = 64; }),
              AllOf(HasSubstr("draft_head_tokens: found 64"), allows("auto and 0")));
  EXPECT_THAT(with([](EngineOptions* o) { o->draft_kv_cache = KvCacheType::kInt8; }),
              AllOf(HasSubstr("draft_kv_cache: found int8"), allows("f32")));
  EXPECT_THAT(with([](EngineOptions* o) { o->tensor_parallel = 2; }),
              AllOf(HasSubstr("tensor_parallel: found 2"), allows("1")));
  EXPECT_EQ(with([](EngineOptions* o) { o->draft_kv_cache = KvCacheType::kF32; }), "");
}

TEST_P(EngineHead, ModelDraftersSelectTheHead) {
  EngineOptions options = Options();
  options.drafter = DrafterKind::kAuto;
  EXPECT_EQ(MakeEngine(options)->drafter(), DrafterKind::kHeadAndNgram);
  options.drafter = DrafterKind::kModel;
  EXPECT_EQ(MakeEngine(options)->drafter(), DrafterKind::kHead);
  options.drafter = DrafterKind::kModelAndNgram;
  EXPECT_EQ(MakeEngine(options)->drafter(), DrafterKind::kHeadAndNgram);
  for (const std::string& draft : {std::string(), Target(), std::string("self:q8_0")}) {
    options.draft = draft;
    options.drafter = DrafterKind::kHead;
    EXPECT_THAT(RefusalOf(options), AllOf(HasSubstr("drafter: "), HasSubstr("draft head")))
        << draft;
  }
}

TEST_P(EngineHead, RefusesAHeadOfAnotherVocabulary) {
  const ModelCopy copy(Options().draft);
  copy.SetConfig("vocab_size", 4000);
  copy.SetConfig("draft_vocab_size", nullptr);
  EngineOptions options = Options();
  options.draft = copy.path();
  EXPECT_THAT(RefusalOf(options), HasSubstr("vocab_size: found 4000, allowed: 4096"));
}

// The shipped target has two layers, too few for the default layers of an EAGLE-3 head.
TEST_P(EngineHead, RefusesToGuessTheLayersOfASmallTarget) {
  if (GetParam()) return;  // the one-layer form reads the last state of any target
  const ModelCopy copy(Options().draft);
  copy.SetConfig("eagle_aux_hidden_state_layer_ids", nullptr);
  EngineOptions options = Options();
  options.draft = copy.path();
  EXPECT_THAT(RefusalOf(options),
              HasSubstr("eagle_aux_hidden_state_layer_ids: found none, allowed: layers of "
                        "the target, whose 2 are too few for the default ones"));
}

TEST_P(EngineHead, IsRefusedAsATarget) {
  EngineOptions options = PlainOptions();
  options.target = Options().draft;
  EXPECT_EQ(RefusalOf(options),
            absl::StrCat("target: found ", options.target,
                         ", a draft head, allowed: a model; a head is a draft"));
}

// Drafts so poor that nothing is accepted have a reason that the log names.
TEST_P(EngineHead, WarnsOfDamagedWeightsAndLayersOutOfOrder) {
  LogCapture log;
  const ModelCopy copy(Options().draft);
  EngineOptions options = Options();
  options.draft = copy.path();
  Generate(MakeEngine(options).get(), Greedy(Prompt(0, 12)));
  EXPECT_THAT(log.text(), testing::Not(HasSubstr("warn")));

  if (!GetParam()) copy.SetConfig("eagle_aux_hidden_state_layer_ids", {2, 1, 0});
  const std::string weights = copy.path() + "/model.safetensors";
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4096, std::ios::end);
  file << std::string(4096, '\xFF');  // in bfloat16, NaN
  file.close();
  Generate(MakeEngine(options).get(), Greedy(Prompt(0, 12)));
  EXPECT_THAT(log.text(), HasSubstr("the draft's logits contain NaN"));
  EXPECT_EQ(absl::StrContains(log.text(), "[2, 1, 0] are not in ascending order"), !GetParam());
}

}  // namespace
}  // namespace tandem
