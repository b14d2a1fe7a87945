// Golden models of every family as GGUF files, compared with the reference's logits for the folders
// that the files are made from (tests/data/README.md).
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/golden_gguf.h"
#include "tests/model_testing.h"

namespace tandem {
namespace {

// The same as in golden_models_test.cc.
constexpr float kGgufTolerance = 2e-4f;

// Returns the logits [ids, vocab] for the golden inputs of the model `name`, or an empty vector on
// errors.
std::vector<float> LogitsOf(const GgufBuilder& file, const std::string& name) {
  const TestFolder folder;
  const std::string path = folder.Write("family.gguf", file.Bytes());
  const auto backend = *MakeCpuBackend({.num_threads = 2, .compute = CpuCompute::kF32});
  const auto model = Transformer::Load(path, backend.get());
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const Golden golden = ReadGolden(GoldenModelPath(name));
  const auto cache = *PagedKvCache::Create(backend.get(), (*model)->kv_layout(16), 16);
  KvSequence kv = cache->NewSequence((*model)->cache_variant(72));
  return Feed(**model, &kv, golden.input_ids);
}

class GgufFamily : public testing::TestWithParam<std::string> {};

TEST_P(GgufFamily, LogitsEqualTheReferenceOfTheFolder) {
  const std::vector<float> wanted = ReadGolden(GoldenModelPath(GetParam())).logits;
  const std::vector<float> logits = LogitsOf(GoldenAsGguf(GoldenModelPath(GetParam())), GetParam());
  EXPECT_LE(LargestDifference(logits, wanted), kGgufTolerance);
}

// Each expert has its own tensor.
TEST(GgufFamilies, ExpertsCanBeSeparateTensors) {
  for (const char* const name : {"mixtral", "qwen3-moe"}) {
    const GgufBuilder stacked = GoldenAsGguf(GoldenModelPath(name));
    const GgufBuilder apart = GoldenAsGguf(GoldenModelPath(name), GoldenExperts::kApart);
    EXPECT_GT(apart.tensors.size(), stacked.tensors.size());
    EXPECT_EQ(LogitsOf(apart, name), LogitsOf(stacked, name));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamily,
                         testing::Values("cohere2", "gemma2", "gemma3-nested", "gemma3-text",
                                         "glm4", "granite", "llama-gqa", "llama-longrope",
                                         "llama-rope3", "llama-yarn", "mistral3-nested", "mixtral",
                                         "olmo2", "phi3-longrope", "phi3-short", "phi3-window",
                                         "qwen2-bias", "qwen2-yarn", "qwen3-moe", "smollm3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
