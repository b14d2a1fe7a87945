// Checkpoints whose configuration says that the head is the embedding, and whose files may say
// otherwise. The expected logits are those of the golden models, which equal the reference's.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/log_testing.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/checkpoint/safetensors.h"
#include "model/transformer.h"
#include "tests/folder_testing.h"
#include "tests/model_testing.h"
#include "tests/safetensors_builder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = SortedJson;
using Tensor = SafetensorsBuilder::Tensor;

constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

std::string Golden(const std::string& name) {
  return absl::StrCat(SourcePath("tests/data/models/"), name);
}

class OwnHead : public FolderTest {
 protected:
  // Writes a golden model with changes to the folder "model".
  void Change(const std::string& golden, const std::function<void(Json*)>& config,
              const std::function<void(SafetensorsBuilder*)>& tensors) const {
    Json json = *ParseJson(*ReadFile(Golden(golden) + "/config.json"), "config.json");
    config(&json);
    Write("model/config.json", json.dump());
    const std::string file = *ReadFile(Golden(golden) + "/model.safetensors");
    SafetensorsBuilder builder;
    const auto entries = *ParseSafetensors(
        {reinterpret_cast<const std::byte*>(file.data()), file.size()}, "model.safetensors");
    for (const SafetensorsEntry& entry : entries) {
      builder[entry.name] = {
          entry.dtype_name, entry.shape,
          std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size())};
    }
    tensors(&builder);
    Write("model/model.safetensors", builder.Bytes());
  }
  std::unique_ptr<Transformer> Load(const std::string& path,
                                    const Transformer::LoadOptions& options = {}) {
    log_.Clear();
    auto model = Transformer::Load(path, backend_.get(), options);
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(!model.ok() || (*model)->AwaitPackedFile().ok());
    return model.ok() ? *std::move(model) : nullptr;
  }
  std::vector<float> Logits(Transformer* model) const {
    if (model == nullptr) return {};
    const auto cache = *PagedKvCache::Create(backend_.get(), model->kv_layout(16), 1);
    KvSequence kv = cache->NewSequence();
    return Feed(*model, &kv, {5, 100, 17});
  }
  // Expects that "model" has these logits, and whether there is a warning about its head.
  void ExpectModel(const std::vector<float>& logits, bool is_tied,
                   const Transformer::LoadOptions& options = {}) {
    const auto model = Load(Path("model"), options);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->config().tied_embeddings, is_tied);
    EXPECT_THAT(model->weights_form(), HasSubstr(is_tied ? "tied head" : "own head"));
    EXPECT_EQ(Logits(model.get()), logits);
    const bool has_warning = absl::StrContains(log_.text(), "warning");
    EXPECT_EQ(has_warning, !is_tied) << log_.text();
    if (is_tied) return;
    EXPECT_THAT(log_.text(),
                HasSubstr("lm_head.weight\": is used as the head, because it differs"));
  }

  const std::unique_ptr<Backend> backend_ = *MakeCpuBackend({.num_threads = 2});
  LogCapture log_;
};

void Keep(SafetensorsBuilder* /*tensors*/) {}
void ClaimTie(Json* config) { (*config)["tie_word_embeddings"] = true; }
void ClaimNothing(Json* config) { config->erase("tie_word_embeddings"); }

std::string Reversed(const Tensor& matrix) {
  const size_t row_bytes = matrix.data.size() / static_cast<size_t>(matrix.shape[0]);
  std::string rows;
  for (size_t at = matrix.data.size(); at > 0; at -= row_bytes) {
    rows += matrix.data.substr(at - row_bytes, row_bytes);
  }
  return rows;
}

TEST_F(OwnHead, ThatDiffersIsUsedWithAWarning) {
  for (const char* name : {"llama-gqa", "llama-bf16", "phi3-short", "glm4", "mistral3-nested"}) {
    SCOPED_TRACE(name);
    const std::vector<float> logits = Logits(Load(Golden(name)).get());
    Change(name, ClaimTie, Keep);
    ExpectModel(logits, /*is_tied=*/false);
    if (!absl::EndsWith(name, "nested")) continue;
    Change(
        name, [](Json* config) { ClaimTie(&(*config)["text_config"]); }, Keep);
    ExpectModel(logits, /*is_tied=*/false);
  }
}

// The head's rows are the embedding's in reverse, so the logits are, too.
TEST_F(OwnHead, IsUsedInFamiliesThatTieByDefault) {
  for (const char* name : {"gemma2", "gemma3-text", "gemma3-nested", "cohere2", "smollm3"}) {
    SCOPED_TRACE(name);
    std::vector<float> logits = Logits(Load(Golden(name)).get());
    const auto vocab = static_cast<int64_t>(logits.size()) / 3;
    for (auto row = logits.begin(); row != logits.end(); row += vocab) {
      std::reverse(row, row + vocab);
    }
    Change(name, ClaimNothing, [&](SafetensorsBuilder* tensors) {
      const std::string prefix = absl::EndsWith(name, "nested") ? "language_model." : "";
      Tensor head = (*tensors)[prefix + kEmbedding];
      head.data = Reversed(head);
      (*tensors)[prefix + kHead] = head;
    });
    ExpectModel(logits, /*is_tied=*/false);
  }
}

TEST_F(OwnHead, ThatEqualsTheEmbeddingIsTied) {
  const std::vector<float> logits = Logits(Load(Golden("llama-tied")).get());
  Change("llama-tied", ClaimTie,
         [](SafetensorsBuilder* tensors) { (*tensors)[kHead] = (*tensors)[kEmbedding]; });
  ExpectModel(logits, /*is_tied=*/true);
  // Equality is that of numbers: a zero may have a sign, and dtypes may differ.
  const std::vector<float> zeros(331 * 40, 0.0f);
  const std::vector<float> other_zeros(331 * 40, -0.0f);
  Change("llama-tied", ClaimTie, [&](SafetensorsBuilder* tensors) {
    tensors->AddFloats(kEmbedding, "BF16", {331, 40}, zeros);
    tensors->AddFloats(kHead, "F32", {331, 40}, other_zeros);
  });
  EXPECT_TRUE(Load(Path("model"))->config().tied_embeddings);
}

TEST_F(OwnHead, ServesAsTheEmbeddingIfThereIsNone) {
  for (const char* name : {"llama-tied", "gemma3-nested"}) {
    SCOPED_TRACE(name);
    const std::vector<float> logits = Logits(Load(Golden(name)).get());
    Change(
        name, [](Json*) {},
        [&](SafetensorsBuilder* tensors) {
          const std::string prefix = absl::EndsWith(name, "nested") ? "language_model." : "";
          (*tensors)[prefix + kHead] = (*tensors)[prefix + kEmbedding];
          tensors->Remove(prefix + kEmbedding);
        });
    ExpectModel(logits, /*is_tied=*/true);
  }
  Change(
      "llama-gqa", [](Json*) {}, [](SafetensorsBuilder* tensors) { tensors->Remove(kEmbedding); });
  EXPECT_THAT(std::string(Transformer::Load(Path("model"), backend_.get()).status().message()),
              HasSubstr("\"model.embed_tokens.weight\": not found"));
}

// The embedding changes, but not the file's time nor its first bytes: only a new comparison would
// see it.
TEST_F(OwnHead, IsComparedOnceAndRememberedInThePackedFile) {
  const Transformer::LoadOptions packed = {.packed_folder = Path("packed"), .min_packed_bytes = 0};
  const std::vector<float> logits = Logits(Load(Golden("llama-gqa")).get());
  Change("llama-gqa", ClaimTie, Keep);
  const std::string file = Path("model/model.safetensors");
  const auto time = fs::last_write_time(file);
  ExpectModel(logits, /*is_tied=*/false, packed);
  ExpectModel(logits, /*is_tied=*/false, packed);
  const auto make_equal = [](SafetensorsBuilder* tensors) {
    (*tensors)[kEmbedding].data = (*tensors)[kHead].data;
  };
  Change("llama-gqa", ClaimNothing, make_equal);
  const std::vector<float> equal = Logits(Load(Path("model")).get());
  EXPECT_NE(equal, logits);
  Change("llama-gqa", ClaimTie, make_equal);
  fs::last_write_time(file, time);
  ExpectModel(equal, /*is_tied=*/false, packed);
  fs::last_write_time(file, time + std::chrono::seconds(2));
  ExpectModel(equal, /*is_tied=*/true, packed);
  ExpectModel(equal, /*is_tied=*/true, packed);
  // A claim that is withdrawn needs no comparison.
  Change("llama-gqa", ClaimNothing, Keep);
  EXPECT_EQ(Logits(Load(Path("model"), packed).get()), logits);
  EXPECT_THAT(log_.text(), testing::Not(HasSubstr("warning")));
}

TEST_F(OwnHead, IsLeftOutAndSetLikeAnyOther) {
  const std::vector<float> logits = Logits(Load(Golden("llama-gqa")).get());
  Change("llama-gqa", ClaimTie, Keep);
  for (const bool is_packed : {false, true, true}) {
    const auto model = Load(Path("model"), {.packed_folder = is_packed ? Path("packed") : "",
                                            .min_packed_bytes = 0,
                                            .sets_head_from = 1});
    ASSERT_TRUE(model->SetHead({}).ok());
    EXPECT_EQ(Logits(model.get()), logits);
  }
}

TEST_F(OwnHead, WithAnotherShapeIsRefused) {
  Change("llama-tied", ClaimTie, [](SafetensorsBuilder* tensors) {
    tensors->AddFloats(kHead, "F32", {2, 40}, std::vector<float>(80));
  });
  EXPECT_THAT(std::string(Transformer::Load(Path("model"), backend_.get()).status().message()),
              HasSubstr("\"lm_head.weight\": shape: found [2, 40], allowed: [331, 40]"));
}

TEST_F(OwnHead, EveryOtherTensorIsUsedKnownOrRefused) {
  const std::vector<float> logits = Logits(Load(Golden("llama-tied")).get());
  const std::string attention = "model.layers.0.self_attn.";
  const auto with = [&](const std::string& name) {
    Change("llama-tied", ClaimTie, [&](SafetensorsBuilder* tensors) {
      tensors->AddFloats(name, "F32", {2}, {1, 2});
    });
  };
  for (const char* name : {"rotary_emb.inv_freq", "bias", "masked_bias"}) {
    with(attention + name);
    ExpectModel(logits, /*is_tied=*/true);
  }
  for (const std::string name :
       {"lm_head.bias", "vision_tower.weight", "model.layers.9.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_scale"}) {
    with(name);
    EXPECT_THAT(std::string(Transformer::Load(Path("model"), backend_.get()).status().message()),
                HasSubstr(absl::StrCat("\"", name, "\" has no place in a llama model")));
  }
}

TEST_F(OwnHead, AnAdapterThatIsNotUsedIsNamed) {
  Change("llama-tied", ClaimTie, Keep);
  Write("model/adapter_config.json", "{}");
  Load(Path("model"));
  EXPECT_THAT(log_.text(), HasSubstr("adapter_config.json describes is not used"));
}

}  // namespace
}  // namespace tandem
