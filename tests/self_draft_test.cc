// Every golden model, of every family, with its own weights in another format as its draft.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

TEST(SelfDrafts, WriteThePlainTextInEveryFamily) {
  int accepted = 0;
  int proposed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenModelPath(""))) {
    SCOPED_TRACE(entry.path().filename().string());
    const Golden golden = ReadGolden(entry.path());
    for (const char* const draft : {"self:q8_0", "self:q4_0"}) {
      EngineOptions options = DraftModelOptionsFor(entry.path(), draft);
      options.compute = "f32";
      const auto engine = Engine::Create(options);
      ASSERT_TRUE(engine.ok()) << engine.status();
      Request request{.prompt_ids = {golden.input_ids.begin(), golden.input_ids.begin() + 8},
                      .max_tokens = static_cast<int>(golden.greedy_ids.size()),
                      .draft_tokens = 3};
      request.sampling.temperature = 0.0f;
      request.ignore_eos = true;
      const Completion drafted = Generate(engine->get(), request);
      EXPECT_EQ(drafted.token_ids, golden.greedy_ids) << draft;
      EXPECT_GT(drafted.stats.accepted, 0) << draft;
      accepted += drafted.stats.accepted;
      proposed += drafted.stats.proposed;
    }
  }
  EXPECT_GT(accepted * 2, proposed);  // by chance it would be one in three hundred
}

}  // namespace
}  // namespace tandem
