// Engines that find pages in a store that other engines have filled.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"
#include "tests/store_world.h"

namespace tandem {
namespace {

EngineOptions SmallPagesFor(const GoldenPair& pair) {
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  return options;
}

// Row 182 of the bug catalogue: the pages of both models come back, so the text, its
// log-probabilities and the accepted tokens are the same as before the restart.
TEST(EngineStore, IsTheSameAfterARestart) {
  for (const KvCacheType kv_cache : kCacheTypes) {
    for (const std::string name : {"shallow", "perturbed", "parallel/qwen2-parallel"}) {
      const GoldenPair pair(name);
      EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
      options.kv_cache = kv_cache;
      const std::unique_ptr<Engine> reference = MakeEngine(options);
      for (const int page_size : {4, 16}) {
        options.page_size = page_size;
        StoreWorld world;
        for (const int length : {1, page_size - 1, page_size, page_size + 1, 3 * page_size - 1,
                                 3 * page_size, 3 * page_size + 1}) {
          SCOPED_TRACE(
              absl::StrCat(View(NameOf(kv_cache)), " ", name, " page ", page_size, " of ", length));
          // Make the text start differently from the earlier ones.
          std::vector<TokenId> prompt = PromptOf(pair, length);
          prompt[0] = length;
          const Request request = RequestFor(prompt);
          const Completion want = Generate(reference.get(), request);
          Completion before, after;
          before = Generate(world.Start(options).get(), request);
          EXPECT_EQ(before.store_tokens, 0);
          {
            const std::unique_ptr<Engine> engine = world.Start(options);
            after = Generate(engine.get(), request);
            const EngineLoad load = engine->load();
            const int whole = WholePages(length, page_size);
            EXPECT_EQ(after.store_tokens, whole);
            EXPECT_EQ(after.cached_tokens, whole);
            EXPECT_EQ(load.draft_prefix_hits, whole);
            EXPECT_EQ(load.store.pages_hit, 2 * whole / page_size);
            EXPECT_EQ(load.store.pages_damaged, 0);
            EXPECT_TRUE(engine->CheckIntegrity().ok());
          }
          for (const Completion& got : {before, after}) {
            ExpectSameOutput(got, want);
            ExpectSameCounts(got.stats, want.stats);
          }
        }
      }
    }
  }
}

// Row 181: a tenant computes pages that another tenant has stored.
TEST(EngineStore, DoesNotSharePagesBetweenTenants) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  StoreWorld world;
  const Request without_salt = RequestFor(PromptOf(pair, 41));
  Request one = without_salt, other = without_salt;
  one.cache_salt = "one";
  other.cache_salt = "other";
  const Completion want = Generate(MakeEngine(options).get(), one);
  Generate(world.Start(options).get(), one);
  for (const Request& request : {other, without_salt, one}) {
    const std::unique_ptr<Engine> engine = world.Start(options);
    const Completion got = Generate(engine.get(), request);
    EXPECT_EQ(got.store_tokens, request.cache_salt == "one" ? 40 : 0);
    EXPECT_EQ(engine->load().draft_prefix_hits, got.store_tokens);
    ExpectSameOutput(got, want);
  }
}

// The draft's pages come back, even if it reads only a window of the text and its cache has another
// type.
TEST(EngineStore, KeepsPagesOfADraftWithAWindow) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  options.draft_window = 16;
  options.draft_kv_cache = KvCacheType::kBF16;
  const Request request = RequestFor(PromptOf(pair, 41));
  const Completion want = Generate(MakeEngine(options).get(), request);
  StoreWorld world;
  Completion before;
  before = Generate(world.Start(options).get(), request);
  const std::unique_ptr<Engine> engine = world.Start(options);
  const Completion after = Generate(engine.get(), request);
  EXPECT_EQ(after.store_tokens, 40);
  EXPECT_GT(engine->load().draft_prefix_hits, 8);
  EXPECT_LT(engine->load().draft_prefix_hits, 40);
  for (const Completion& got : {before, after}) {
    ExpectSameOutput(got, want);
    ExpectSameCounts(got.stats, want.stats);
  }
}

// A text beyond the model's original context gets another rotary embedding from its first token on,
// so short and long texts do not share pages even if their tokens are equal.
TEST(EngineStore, DoesNotSharePagesBetweenRotaryVariants) {
  EngineOptions options = CpuOptionsFor(GoldenModelPath("phi3-longrope"), "");
  options.drafter = DrafterKind::kNone;
  options.page_size = 1;
  const std::unique_ptr<Engine> reference = MakeEngine(options);
  Request within = RequestFor({5, 12, 19, 26});
  within.max_tokens = 2;  // the original context has 6 tokens
  Request beyond = within;
  beyond.max_tokens = 40;
  StoreWorld world;
  for (int time = 0; time < 2; ++time) {
    for (const Request& request : {within, beyond}) {
      const Completion got = Generate(world.Start(options).get(), request);
      EXPECT_EQ(got.store_tokens, time == 0 ? 0 : 3);
      ExpectSameOutput(got, Generate(reference.get(), request));
    }
  }
}

// The next turn of the conversation finds the answer too.
TEST(EngineStore, KeepsAnswers) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  StoreWorld world;
  const Request first = RequestFor(PromptOf(pair, 9));
  Completion answer;
  answer = Generate(world.Start(options).get(), first);
  Request second = first;
  for (const TokenId token : answer.token_ids) second.prompt_ids.push_back(token);
  second.prompt_ids.push_back(1);
  const Completion got = Generate(world.Start(options).get(), second);
  EXPECT_GE(got.store_tokens, 24);
  ExpectSameOutput(got, Generate(MakeEngine(options).get(), second));
}

// Row 183: pages of another model, another cache type or other arithmetic are not used.
TEST(EngineStore, DoesNotUsePagesOfOtherEngines) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  const Request request = RequestFor(PromptOf(pair, 30));
  StoreWorld world;
  Generate(world.Start(options).get(), request);
  EXPECT_EQ(Generate(world.Start(options).get(), request).store_tokens, 28);

  EngineOptions other_cache = options, other_pages = options, other_model = options,
                other_weights = options;
  other_cache.kv_cache = KvCacheType::kInt8;
  other_pages.page_size = 8;
  other_model.target = GoldenPair("perturbed").draft;
  other_model.draft.clear();
  other_model.drafter = DrafterKind::kNone;
  other_weights.quantize = Quantization::kQ8_0;
  for (const EngineOptions& other : {other_cache, other_pages, other_model, other_weights}) {
    const Completion got = Generate(world.Start(other).get(), request);
    EXPECT_EQ(got.store_tokens, 0);
    ExpectSameOutput(got, Generate(MakeEngine(other).get(), request));
  }
  // The other engines stored their pages next to the first one's.
  EXPECT_EQ(Generate(world.Start(options).get(), request).store_tokens, 28);
}

// The same weights under another path are the same model.
TEST(EngineStore, FindsPagesOfAModelThatWasMoved) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  const Request request = RequestFor(PromptOf(pair, 30));
  StoreWorld world;
  Generate(world.Start(options).get(), request);
  const ModelCopy copy(pair.target);
  options.target = copy.path();
  options.threads = 2;
  options.max_batch = 1;
  EXPECT_EQ(Generate(world.Start(options).get(), request).store_tokens, 28);
  copy.SetConfig("rms_norm_eps", 1e-4);
  EXPECT_EQ(Generate(world.Start(options).get(), request).store_tokens, 0);
}

// Many requests at once, some of which share prefixes, in caches that hold only a few of them.
TEST(EngineStore, ServesManyInSmallCaches) {
  const GoldenPair pair("perturbed");
  EngineOptions options = SmallPagesFor(pair);
  options.max_batch = 4;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    std::vector<TokenId> prompt = PromptOf(pair, 20 + i);
    prompt[i % 3 == 0 ? 0 : 17] = i;
    requests.push_back(RequestFor(prompt));
  }
  const std::vector<Completion> want = GenerateAll(MakeEngine(options).get(), requests);
  StoreWorld world;
  for (const int num_tokens : {60, 100, 400}) {
    options.kv_memory_bytes = KvBytesFor(pair.target, pair.draft, num_tokens);
    for (int time = 0; time < 2; ++time) {
      SCOPED_TRACE(absl::StrCat(num_tokens, " tokens, time ", time));
      const std::unique_ptr<Engine> engine = world.Start(options);
      const std::vector<Completion> got = GenerateAll(engine.get(), requests);
      for (size_t i = 0; i < requests.size(); ++i) ExpectSameOutput(got[i], want[i]);
      EXPECT_TRUE(engine->CheckIntegrity().ok());
    }
  }
}

// Requests that arrive together with the same prefix wait for a single read of its pages.
TEST(EngineStore, ReadsPagesOfTheSamePromptOnce) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  options.max_batch = 3;
  const Request request = RequestFor(PromptOf(pair, 41));
  Completion want;
  StoreWorld world;
  want = Generate(world.Start(options).get(), request);

  const std::shared_ptr<WatchedStore> store = world.Open();
  absl::Notification all_run;
  store->before_page = [&] { all_run.WaitForNotification(); };
  const std::unique_ptr<Engine> engine = StoreWorld::Start(options, store);
  std::vector<GenerationId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(*engine->Submit(request));
  while (engine->load().num_running < 3) absl::SleepFor(absl::Milliseconds(1));
  all_run.Notify();
  for (const GenerationId id : ids) {
    const absl::StatusOr<Completion> got = engine->Wait(id);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->store_tokens, 40);
    ExpectSameOutput(*got, want);
  }
  EXPECT_EQ(engine->load().store.pages_read, 2 * 10);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// Neither cancelling a request that waits for the disk nor destroying the engine has to wait for
// the disk.
TEST(EngineStore, CancelsAndEndsWithoutWaitingForTheDisk) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  const Request request = RequestFor(PromptOf(pair, 41));
  StoreWorld world;
  Generate(world.Start(options).get(), request);
  const std::shared_ptr<WatchedStore> store = world.Open();
  absl::Notification is_over;
  store->before_page = [&] { is_over.WaitForNotification(); };
  std::unique_ptr<Engine> engine = StoreWorld::Start(options, store);
  const auto id = engine->Submit(request);
  ASSERT_TRUE(id.ok());
  engine->Cancel(*id);
  const absl::StatusOr<Completion> got = engine->Wait(*id);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->finish_reason, FinishReason::kCancelled);
  ASSERT_TRUE(engine->Submit(request).ok());
  is_over.Notify();
  engine.reset();
}

// Row 184: a disk that hangs costs at most a fraction of the time of computing, by the clock. Then
// the pages are computed.
TEST(EngineStore, ComputesPagesIfTheDiskIsTooSlow) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  const Request request = RequestFor(PromptOf(pair, 41));
  const Completion want = Generate(MakeEngine(options).get(), request);
  StoreWorld world;
  Generate(world.Start(options).get(), request);

  const std::shared_ptr<WatchedStore> store = world.Open();
  absl::Notification is_asked, is_over;
  store->before_page = [&] {
    if (!is_asked.HasBeenNotified()) is_asked.Notify();
    is_over.WaitForNotification();
  };
  {
    const std::unique_ptr<Engine> engine = StoreWorld::Start(options, store);
    const auto id = engine->Submit(request);
    ASSERT_TRUE(id.ok());
    is_asked.WaitForNotification();
    const absl::Duration computing = absl::Seconds(41 / StoreWorld::kTokensPerSecond);
    world.clock().Advance(0.04 * computing);
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        engine->Wait(*id, absl::ZeroDuration()).status()));  // still waiting
    world.clock().Advance(0.02 * computing);
    const absl::StatusOr<Completion> got = engine->Wait(*id);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->store_tokens, 0);
    ExpectSameOutput(*got, want);
    is_over.Notify();
  }
}

// Row 185: pages that cannot be written are counted, and answers stay the same.
TEST(EngineStore, CountsPagesThatCannotBeWritten) {
  const GoldenPair pair("shallow");
  EngineOptions options = SmallPagesFor(pair);
  const Request request = RequestFor(PromptOf(pair, 30));
  const Completion want = Generate(MakeEngine(options).get(), request);
  StoreWorld world;
  const std::shared_ptr<WatchedStore> store = world.Open();
  store->write_error = absl::ResourceExhaustedError("no space left");
  const std::unique_ptr<Engine> engine = StoreWorld::Start(options, store);
  ExpectSameOutput(Generate(engine.get(), request), want);
  const auto has_dropped = [&] { return engine->load().store.pages_dropped > 0; };
  while (!has_dropped()) Generate(engine.get(), RequestFor(PromptOf(pair, 5)));
  EXPECT_EQ(engine->load().store.pages_written, 0);
  ExpectSameOutput(Generate(engine.get(), request), want);
}

// A folder that cannot be created only logs a warning.
TEST(EngineStore, RunsWithoutAStoreIfTheFolderCannotBeCreated) {
  const GoldenPair pair("shallow");
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.kv_store = "/proc/no/store";
  const Completion got = Generate(MakeEngine(options).get(), RequestFor(PromptOf(pair, 30)));
  EXPECT_EQ(got.store_tokens, 0);
}

TEST(EngineStore, RefusesInvalidOptions) {
  EngineOptions options = CpuOptionsFor("x", "");
  options.kv_store = "folder";
  options.prefix_cache = false;
  EXPECT_EQ(options.Validate().message(), "kv_store: needs the prefix cache, which is off");
  options.prefix_cache = true;
  options.kv_store_bytes = 1000;
  EXPECT_EQ(options.Validate().message(), "kv_store_size: must be at least 1048576, got 1000");
}

}  // namespace
}  // namespace tandem
