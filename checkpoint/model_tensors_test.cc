#include "checkpoint/model_tensors.h"

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/arranged_weights.h"
#include "checkpoint/head_config.h"
#include "checkpoint/weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using ::testing::ElementsAreArray;

TEST(ModelTensors, AreThoseOfEveryGoldenCheckpoint) {
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

TEST(ModelTensors, AreThoseOfEveryDraftHead) {
  int num_heads = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/data/heads")) {
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

TEST(ModelTensors, ADecodingStepReadsMatricesAndATiedEmbedding) {
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
}  // namespace tandem
