// Golden models of every family as GGUF files, against the logits of the reference for the folders
// that they are made of (tests/data/README.md).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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

// As in golden_models_test.cc.
constexpr float kGgufTolerance = 2e-4f;

class GgufFamily : public testing::TestWithParam<std::string> {
 protected:
  GgufFamily() : path_(absl::StrCat(testing::TempDir(), "/family_", GetParam(), ".gguf")) {}
  ~GgufFamily() override { std::filesystem::remove(path_); }

  // The largest difference of a logit.
  float Distance(const GgufBuilder& file) {
    std::ofstream(path_, std::ios::binary) << file.Bytes();
    const auto backend = *MakeCpuBackend({.num_threads = 2, .compute = CpuCompute::kF32});
    const auto model = Transformer::Load(path_, backend.get());
    if (!model.ok()) {
      ADD_FAILURE() << model.status();
      return HUGE_VALF;
    }
    const Golden golden = ReadGolden(GoldenModelPath(GetParam()));
    const auto cache = *PagedKvCache::Create(backend.get(), (*model)->kv_layout(16), 16);
    KvSequence kv = cache->NewSequence((*model)->cache_variant(72));
    const ForwardRequest request{.tokens = golden.input_ids,
                                 .kv = &kv,
                                 .num_logits = static_cast<int>(golden.input_ids.size())};
    const MatrixView rows = *(*model)->Forward({&request, 1});
    EXPECT_EQ(static_cast<size_t>(rows.rows) * rows.cols, golden.logits.size());
    const auto* const logits = static_cast<const float*>(rows.data);
    float worst = 0.0f;
    for (size_t i = 0; i < golden.logits.size(); ++i) {
      worst = std::max(worst, std::abs(logits[i] - golden.logits[i]));
    }
    return worst;
  }

 private:
  const std::string path_;
};

TEST_P(GgufFamily, LogitsAreTheFoldersReferences) {
  EXPECT_LE(Distance(GoldenAsGguf(GoldenModelPath(GetParam()))), kGgufTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamily,
                         testing::Values("cohere2", "gemma2", "gemma3-nested", "gemma3-text",
                                         "glm4", "granite", "llama-gqa", "llama-longrope",
                                         "llama-rope3", "llama-yarn", "mistral3-nested", "olmo2",
                                         "phi3-longrope", "phi3-short", "phi3-window", "qwen2-bias",
                                         "qwen2-yarn", "smollm3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
