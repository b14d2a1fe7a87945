// EngineOptions::draft_window: how much of a long context the draft reads.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "draft/make_drafter.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// Returns prompts of at least `length` tokens, of which they share the first `length`.
std::vector<Request> LongRequests(int vocab_size, int length, int count) {
  std::mt19937_64 random(5);
  std::vector<TokenId> shared(length);
  for (TokenId& token : shared) token = 3 + static_cast<TokenId>(random() % (vocab_size - 3));
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request{.prompt_ids = shared,
                    .max_tokens = 24,
                    .sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.8f},
                    .seed = static_cast<uint64_t>(i),
                    .ignore_eos = true,
                    .draft_tokens = 0,
                    .verifier = AcceptanceRule::kExactMatch,
                    .logprobs = {.num_top = 2}};
    for (int j = 0; j < 3 * i; ++j) request.prompt_ids.push_back(3 + (7 * i + j) % 200);
    requests.push_back(request);
  }
  return requests;
}

std::vector<Completion> PlainOutput(const EngineOptions& speculative,
                                    std::vector<Request> requests) {
  EngineOptions options = speculative;
  options.draft.clear();
  options.drafter = DrafterKind::kNone;
  options.max_batch = 1;
  options.prefix_cache = false;
  options.kv_memory_bytes = 0;
  for (Request& request : requests) request.draft_tokens = 0;
  return GenerateAll(MakeEngine(options).get(), requests);
}

// Expects the plain output at two draft lengths. Returns how often sequences were preempted.
int ExpectOutput(const std::vector<Completion>& plain, const EngineOptions& speculative,
                 std::vector<Request> requests) {
  const auto engine = MakeEngine(speculative);
  int64_t accepted = 0;
  int64_t cached = 0;
  int num_preemptions = 0;
  for (const int k : {1, 4}) {
    for (Request& request : requests) request.draft_tokens = k;
    const auto got = GenerateAll(engine.get(), requests);
    for (size_t i = 0; i < got.size(); ++i) {
      ExpectSameOutput(got[i], plain[i]);
      ExpectConsistent(got[i]);
      accepted += got[i].stats.accepted;
      cached += got[i].cached_tokens;
      num_preemptions += got[i].num_preemptions;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(cached > 0, speculative.prefix_cache);
  return num_preemptions;
}

// Windows of about a page, smaller than a chunk, and larger than the text, with shared prefixes,
// batches, and so few pages that sequences are preempted.
TEST(EngineDraftWindow, DoesNotChangeTheOutputAtAnySize) {
  const std::string target = ShippedModelPath("storyteller-7m");
  const std::string draft = ShippedModelPath("storyteller-1m");
  const std::vector<Request> requests = LongRequests(4096, 100, 4);
  const int64_t token_bytes = KvBytesFor(target, draft, 1);
  const auto plain = PlainOutput(DraftModelOptionsFor(target, draft), requests);
  int num_preemptions = 0;
  for (const int window : {kAutoDraftWindow, 0, 1, 15, 16, 17, 60, 1000}) {
    SCOPED_TRACE(absl::StrCat("window ", window));
    EngineOptions options = DraftModelOptionsFor(target, draft);
    options.draft_window = window;
    options.max_batch = 3;
    options.chunk_tokens = 32;
    options.kv_memory_bytes = 16 * 10 * token_bytes;
    options.prefix_cache = window != 17;
    num_preemptions += ExpectOutput(plain, options, requests);
  }
  EXPECT_GT(num_preemptions, 0);
}

// Models whose layers have windows themselves, and drafts with another vocabulary than the
// target's.
TEST(EngineDraftWindow, WorksWithEveryFamilyAndVocabulary) {
  for (const std::string name : {"gemma2", "gemma3-text", "cohere2", "phi3-longrope"}) {
    SCOPED_TRACE(name);
    EngineOptions options = DraftModelOptionsFor(GoldenModelPath(name), "self:q8_0");
    options.draft_window = 9;
    const std::vector<Request> requests = LongRequests(200, 40, 3);
    ExpectOutput(PlainOutput(options, requests), options, requests);
  }
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), GoldenModelPath("llama-gqa"));
  options.draft_window = 8;
  const std::vector<Request> requests = LongRequests(4096, 40, 3);
  ExpectOutput(PlainOutput(options, requests), options, requests);
}

TEST(EngineDraftWindow, IsReportedAndValidated) {
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  EXPECT_EQ(MakeEngine(options)->draft_info()->window, DraftWindow::kAutoRecent);
  options.draft_window = 20;
  const auto engine = MakeEngine(options);
  EXPECT_EQ(engine->draft_info()->window, 20);
  EXPECT_EQ(engine->target_info().window, 0);
  options.draft_window = 0;
  EXPECT_EQ(MakeEngine(options)->draft_info()->window, 0);
  options.draft_window = -2;
  EXPECT_THAT(std::string(options.Validate().message()),
              HasSubstr("draft_window: must be auto or at least 0, got -2"));
}

// Row 175 of the bug catalogue. Compares the cached tokens that the engine reports after every
// round, not times.
TEST(EngineDraftWindow, KeepsTheDraftsCacheShort) {
  EngineOptions options =
      DraftModelOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
  for (const int window : {0, 32}) {
    options.draft_window = window;
    const auto engine = MakeEngine(options);
    Request request = LongRequests(4096, 600, 1)[0];
    request.draft_tokens = 2;
    int most = 0;
    const auto id = engine->Submit(request, [&](const Piece& piece) {
      most = std::max(most, piece.round.draft_cached_tokens);
      return true;
    });
    ASSERT_TRUE(id.ok()) << id.status();
    ASSERT_TRUE(engine->Wait(*id).ok());
    EXPECT_EQ(most > 600, window == 0) << most;
    if (window > 0) {
      EXPECT_LE(most, DraftWindow::kSinks + window + request.max_tokens);
    }
  }
}

}  // namespace
}  // namespace tandem
