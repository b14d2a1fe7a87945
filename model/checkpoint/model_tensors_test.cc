#include "model/checkpoint/model_tensors.h"

#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/source_path_testing.h"
#include "base/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/weights.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using ::testing::ElementsAreArray;

TEST(ModelTensors, MatchEveryGoldenCheckpoint) {
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenModelPath(""))) {
    SCOPED_TRACE(entry.path());
    const auto config = ReadModelConfig(entry.path());
    auto stored = Weights::Open(entry.path());
    ASSERT_TRUE(config.ok() && stored.ok());
    const auto weights = ArrangeWeights(*std::move(stored), *config);
    ASSERT_TRUE(weights.ok());
    std::vector<std::string> names;
    for (const TensorSpec& tensor : TensorsOf(*config)) {
      names.push_back(tensor.name);
      EXPECT_TRUE((*weights)->Get(tensor.name, tensor.shape).ok()) << tensor.name;
    }
    EXPECT_THAT(names, ElementsAreArray((*weights)->names()));
    ++num_models;
  }
  EXPECT_GE(num_models, 32);
}

TEST(ModelTensors, MatchEveryDraftHead) {
  int num_heads = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("tests/data/heads"))) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path());
    ModelConfig config = *ReadModelConfig(entry.path());
    const auto weights = *ArrangeWeights(*Weights::Open(entry.path()), config);
    CompleteHead(*weights, &config);
    std::vector<std::string> names;
    for (const TensorSpec& tensor : TensorsOf(config)) {
      names.push_back(tensor.name);
      EXPECT_TRUE(weights->Get(tensor.name, tensor.shape).ok()) << tensor.name;
    }
    for (const char* const ids : {"d2t", "t2d"}) {
      if (weights->Has(ids)) names.emplace_back(ids);
    }
    EXPECT_THAT(names, testing::UnorderedElementsAreArray(weights->names()));
    ++num_heads;
  }
  EXPECT_EQ(num_heads, 4);
}

TEST(ModelTensors, DecodingReadsMatricesAndATiedEmbedding) {
  ModelConfig config;
  config.num_layers = 1;
  for (const bool tied : {false, true}) {
    config.tied_embeddings = tied;
    for (const TensorSpec& tensor : TensorsOf(config)) {
      const bool is_norm = tensor.role == TensorRole::kNorm;
      const bool is_embedding = tensor.name == "model.embed_tokens.weight";
      EXPECT_EQ(ShareRead(tensor, config), !is_norm && (!is_embedding || tied) ? 1.0 : 0.0)
          << tensor.name;
    }
  }
}

}  // namespace

namespace {

using testing::ElementsAre;

// Tensors of f32 in memory whose elements are 0, 1, 2, ... in order. A tensor that is added as
// "hidden.X" is called X, and is not among names().
class CountingWeights : public Weights {
 public:
  void Add(const std::string& name, std::vector<int64_t> shape) {
    std::vector<float> values(shape[0] * (shape.size() == 2 ? shape[1] : 1));
    std::iota(values.begin(), values.end(), 0.0f);
    if (!absl::StartsWith(name, "hidden.")) names_.push_back(name);
    tensors_[std::string(absl::StripPrefix(name, "hidden."))] = {std::move(shape),
                                                                 std::move(values)};
  }
  bool Has(std::string_view name) const override { return tensors_.count(std::string(name)) > 0; }
  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat("no ", View(name)));
    if (found->second.shape != std::vector<int64_t>(shape.begin(), shape.end())) {
      return absl::InvalidArgumentError(absl::StrCat("shape of ", View(name)));
    }
    const int rows = shape.size() == 2 ? static_cast<int>(shape[0]) : 1;
    const int cols = static_cast<int>(shape.back());
    return ConstMatrixView(found->second.values.data(), DType::kF32, rows, cols, cols);
  }
  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    auto matrix = Get(name, shape);
    if (matrix.ok()) matrix->data = nullptr;
    return matrix;
  }
  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t /*size*/) const override {
    return absl::NotFoundError(View(name));
  }
  void Forget(std::string_view) const override { ++num_forgotten; }
  std::vector<std::string> files() const override { return {}; }
  std::vector<std::string> names() const override { return names_; }
  int64_t num_elements(std::string_view name) const override {
    return static_cast<int64_t>(tensors_.at(std::string(name)).values.size());
  }
  std::string Where(std::string_view name) const override { return std::string(name); }

  mutable int num_forgotten = 0;

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> names_;
};

// Two query heads and one head of keys and values, of four elements each; a feed-forward of two.
ModelConfig SmallConfig(const std::string& family) {
  ModelConfig config;
  config.family = family;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.rotary_dim = 4;
  config.intermediate_size = 2;
  return config;
}

std::vector<float> FirstColumn(const Weights& weights, const std::string& name,
                               std::vector<int64_t> shape) {
  const auto matrix = weights.Get(name, shape);
  EXPECT_TRUE(matrix.ok()) << matrix.status();
  std::vector<float> column;
  if (!matrix.ok()) return column;
  const auto* const data = static_cast<const float*>(matrix->data);
  if (shape.size() == 1) return {data, data + matrix->cols};
  for (int r = 0; r < matrix->rows; ++r) column.push_back(data[r * matrix->stride]);
  return column;
}

TEST(ArrangedWeights, GivesEachProjectionItsRows) {
  const auto stored = std::make_shared<CountingWeights>();
  stored->Add("model.layers.0.self_attn.qkv_proj.weight", {16, 1});
  stored->Add("model.layers.0.mlp.gate_up_proj.weight", {4, 1});
  const auto arranged = *ArrangeWeights(stored, SmallConfig("phi3"));
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_THAT(FirstColumn(*arranged, attention + "q_proj.weight", {8, 1}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(FirstColumn(*arranged, attention + "k_proj.weight", {4, 1}),
              ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(FirstColumn(*arranged, attention + "v_proj.weight", {4, 1}),
              ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(FirstColumn(*arranged, "model.layers.0.mlp.up_proj.weight", {2, 1}),
              ElementsAre(2, 3));
  EXPECT_EQ(arranged->names().size(), 5u);
  EXPECT_EQ(arranged->num_elements(attention + "k_proj.weight"), 4);
  EXPECT_FALSE(arranged->Get(attention + "o_proj.weight", {1, 1}).ok());
}

TEST(ArrangedWeights, PutsRotatedPairsHalfAHeadApart) {
  const auto stored = std::make_shared<CountingWeights>();
  const std::string query = "model.layers.0.self_attn.q_proj.";
  stored->Add(query + "weight", {8, 3});
  stored->Add(query + "bias", {8});
  ModelConfig config = SmallConfig("glm4");
  const auto neighbours = *ArrangeWeights(stored, config);
  EXPECT_THAT(FirstColumn(*neighbours, query + "bias", {8}), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(FirstColumn(*neighbours, query + "weight", {8, 3}),
              ElementsAre(0, 6, 3, 9, 12, 18, 15, 21));
  // If part of a head is rotated, the rest comes after it in each half.
  config.rotary_dim = 2;
  const auto part = *ArrangeWeights(stored, config);
  EXPECT_THAT(FirstColumn(*part, query + "bias", {8}), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  config.head_dim = 8;
  config.num_heads = 1;
  config.rotary_dim = 4;
  const auto half = *ArrangeWeights(stored, config);
  EXPECT_THAT(FirstColumn(*half, query + "bias", {8}), ElementsAre(0, 2, 4, 5, 1, 3, 6, 7));
  config.family = "phi3";  // its pairs are rotary_dim / 2 apart
  const auto halves = *ArrangeWeights(stored, config);
  EXPECT_THAT(FirstColumn(*halves, query + "bias", {8}), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  halves->Forget(query + "bias");
  EXPECT_EQ(stored->num_forgotten, 1);
}

TEST(ArrangedWeights, AddsNormOffsetsAndOmitsOtherParts) {
  const auto stored = std::make_shared<CountingWeights>();
  stored->Add("language_model.model.norm.weight", {3});
  stored->Add("language_model.model.layers.0.pre_feedforward_layernorm.weight", {3});
  stored->Add("language_model.model.layers.0.mlp.down_proj.weight", {3, 2});
  stored->Add("vision_tower.layers.0.weight", {3});
  ModelConfig config = SmallConfig("gemma3_text");
  config.has_other_parts = true;
  const auto arranged = *ArrangeWeights(stored, config);
  EXPECT_THAT(FirstColumn(*arranged, "model.norm.weight", {3}), ElementsAre(1, 2, 3));
  EXPECT_THAT(FirstColumn(*arranged, absl::StrCat("model.layers.0.", kMlpNorm, ".weight"), {3}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(FirstColumn(*arranged, "model.layers.0.mlp.down_proj.weight", {3, 2}),
              ElementsAre(0, 2, 4));
  EXPECT_EQ(arranged->names().size(), 3u);
}

TEST(ArrangedWeights, RefusesTwoTensorsForOnePlace) {
  const auto stored = std::make_shared<CountingWeights>();
  stored->Add("model.layers.0.self_attn.qkv_proj.weight", {16, 1});
  stored->Add("model.layers.0.self_attn.k_proj.weight", {4, 1});
  const auto arranged = ArrangeWeights(stored, SmallConfig("phi3"));
  EXPECT_EQ(arranged.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(arranged.status().message(), "qkv_proj"));
  EXPECT_TRUE(absl::StrContains(arranged.status().message(), "k_proj"));
}

// All-zero biases of a quantised checkpoint can be read by name but are not listed.
TEST(ArrangedWeights, GivesUnlistedTensorsByName) {
  const auto stored = std::make_shared<CountingWeights>();
  stored->Add("hidden.model.layers.0.self_attn.q_proj.bias", {8});
  const auto arranged = *ArrangeWeights(stored, SmallConfig("qwen2"));
  EXPECT_TRUE(arranged->names().empty());
  EXPECT_EQ(FirstColumn(*arranged, "model.layers.0.self_attn.q_proj.bias", {8}).size(), 8u);
}

}  // namespace

}  // namespace tandem
