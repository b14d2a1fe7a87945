// Golden models of every family as GGUF files, compared with the reference's logits for the folders
// that the files are made from (tests/data/README.md).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/golden_file.h"
#include "tests/golden_gguf.h"

namespace tandem {
namespace {

// The same as in golden_models_test.cc.
constexpr float kGgufTolerance = 2e-4f;

// Returns the logits [ids, vocab] for the golden inputs of the model `name`, or an empty vector on
// errors.
std::vector<float> LogitsOf(const GgufBuilder& file, const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/family_", name, ".gguf");
  const absl::Cleanup remove = [&] { std::filesystem::remove(path); };
  std::ofstream(path, std::ios::binary) << file.Bytes();
  const auto backend = *MakeCpuBackend({.num_threads = 2, .compute = CpuCompute::kF32});
  const auto model = Transformer::Load(path, backend.get());
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const Golden golden = ReadGolden(GoldenModelPath(name));
  const auto cache = *PagedKvCache::Create(backend.get(), (*model)->kv_layout(16), 16);
  KvSequence kv = cache->NewSequence((*model)->cache_variant(72));
  const ForwardRequest request{.tokens = golden.input_ids,
                               .kv = &kv,
                               .num_logits = static_cast<int>(golden.input_ids.size())};
  const MatrixView rows = *(*model)->Forward({&request, 1});
  const auto* const logits = static_cast<const float*>(rows.data);
  return {logits, logits + static_cast<size_t>(rows.rows) * rows.cols};
}

class GgufFamily : public testing::TestWithParam<std::string> {};

TEST_P(GgufFamily, LogitsEqualTheReferenceOfTheFolder) {
  const std::vector<float> wanted = ReadGolden(GoldenModelPath(GetParam())).logits;
  const std::vector<float> logits = LogitsOf(GoldenAsGguf(GoldenModelPath(GetParam())), GetParam());
  ASSERT_EQ(logits.size(), wanted.size());
  float worst = 0.0f;
  for (size_t i = 0; i < wanted.size(); ++i) {
    worst = std::max(worst, std::abs(logits[i] - wanted[i]));
  }
  EXPECT_LE(worst, kGgufTolerance);
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
