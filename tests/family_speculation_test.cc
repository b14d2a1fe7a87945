// Every family under speculation: drafts from its own quantised copy, batches, small pages and
// preemption do not change the output of plain decoding.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

std::vector<std::string> FamilyModels() {
  return {"gemma2",      "gemma3-nested",  "gemma3-text", "phi3-longrope", "phi3-short",
          "phi3-window", "olmo2",          "granite",     "smollm3",       "glm4",
          "cohere2",     "llama-longrope", "qwen2-yarn",  "qwen3-moe",     "qwen3-moe-mixed",
          "mixtral",     "mistral3-nested"};
}

class FamilySpeculation : public testing::TestWithParam<std::string> {};

// Returns requests whose prompts share a prefix, so that the prefix cache is used. Some prompts are
// long.
std::vector<Request> Requests(const std::string& model) {
  const Golden golden = ReadGolden(GoldenModelPath(model));
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request request{.prompt_ids = {golden.input_ids.begin(), golden.input_ids.begin() + 9 + 4 * i},
                    .max_tokens = i >= 3 ? 100 + 10 * i : 12 + 7 * i,
                    .seed = static_cast<uint64_t>(i),
                    .ignore_eos = true};
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    requests.push_back(request);
  }
  return requests;
}

TEST_P(FamilySpeculation, ChangesNoToken) {
  const std::string path = GoldenModelPath(GetParam());
  std::vector<Completion> plain;
  {
    const auto engine = MakeEngine(CpuOptionsFor(path, ""));
    for (const Request& request : Requests(GetParam())) {
      plain.push_back(Generate(engine.get(), request));
    }
  }
  for (const char* const draft : {"self:q8_0", "self:q4_0"}) {
    for (const int page_size : {2, 16}) {
      SCOPED_TRACE(testing::Message() << draft << " pages of " << page_size);
      EngineOptions options = DraftModelOptionsFor(path, draft);
      options.page_size = page_size;
      // Room for about three of the six, so that the latest are preempted.
      options.kv_memory_bytes = KvBytesFor(path, path, 200);
      options.max_batch = 6;
      const auto engine = MakeEngine(options);
      std::vector<Request> requests = Requests(GetParam());
      for (size_t i = 0; i < requests.size(); ++i) requests[i].draft_tokens = 1 + i;
      const std::vector<Completion> got = GenerateAll(engine.get(), requests);
      int accepted = 0;
      int preemptions = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ExpectSameOutput(got[i], plain[i]);
        accepted += static_cast<int>(got[i].stats.accepted);
        preemptions += got[i].num_preemptions;
      }
      EXPECT_GT(accepted, 0);
      EXPECT_GT(preemptions, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilySpeculation, testing::ValuesIn(FamilyModels()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tandem
