// Prefix hits between requests that arrive together.
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// Row 85 of the bug catalogue. Holds whether or not the requests arrive in time for the same round.
TEST(Engine, ReadsASharedPromptOnce) {
  EngineOptions options = CpuOptionsFor(ShippedModelPath("storyteller-1m"), "");
  options.max_batch = 8;
  EngineOptions without = options;
  without.prefix_cache = false;
  const std::unique_ptr<Engine> reference = MakeEngine(without);
  for (const int length : {162, 802}) {
    const std::unique_ptr<Engine> engine = MakeEngine(options);
    std::vector<TokenId> prompt(length);
    std::iota(prompt.begin(), prompt.end(), 100);
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 8; ++i) {
      requests.push_back(
          {.prompt_ids = prompt, .max_tokens = 20, .seed = 7, .sequence = i, .ignore_eos = true});
    }
    const std::vector<Completion> together = GenerateAll(engine.get(), requests);
    const EngineLoad load = engine->load();
    const int rest = (length - 1) % options.page_size + 1;
    EXPECT_EQ(load.prompt_tokens - load.prefix_hits, length + 7 * rest);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(together[i].token_ids, Generate(reference.get(), requests[i]).token_ids);
    }
  }
}

// A request that only scores a prompt that another request reads is done once the prompt is found.
TEST(Engine, ScoresASharedPrompt) {
  EngineOptions options = CpuOptionsFor(ShippedModelPath("storyteller-1m"), "");
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  for (const int length : {17, 33, 40, 600}) {
    std::vector<TokenId> prompt(length);
    std::iota(prompt.begin(), prompt.end(), length);
    const std::vector<Request> requests(8, {.prompt_ids = prompt, .max_tokens = 0});
    for (const Completion& got : GenerateAll(engine.get(), requests)) {
      EXPECT_TRUE(got.token_ids.empty());
      EXPECT_EQ(got.prompt_tokens, length);
    }
  }
  const absl::Status status = engine->CheckIntegrity();
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace tandem
