#include "checkpoint/draft_vocabulary.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/arranged_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/safetensors_builder.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DraftVocabularyTest : public FolderTest {
 protected:
  DraftVocabularyTest() {
    config_.family = "eagle3";
    config_.state_input = StateInput::kNextToEmbedding;
    config_.vocab_size = 8;
    config_.draft_vocab_size = 3;
    config_.head_dim = config_.rotary_dim = 8;
    file_.AddFloats("norm.weight", "F32", {1}, {1.0f});
  }

  void AddOffsets(const std::vector<int64_t>& offsets) {
    file_.Add("d2t", "I64", {static_cast<int64_t>(offsets.size())}, offsets);
  }
  absl::StatusOr<DraftVocabulary> Read() const {
    Write("model.safetensors", file_.Bytes());
    const auto weights = ArrangeWeights(*Weights::Open(folder_), config_);
    EXPECT_TRUE(weights.ok()) << weights.status();
    return ReadDraftVocabulary(**weights, config_);
  }
  void ExpectRefused(const std::string& says) const {
    const auto vocabulary = Read();
    EXPECT_THAT(std::string(vocabulary.status().message()), HasSubstr(says));
  }

  ModelConfig config_;
  SafetensorsBuilder file_;
};

TEST_F(DraftVocabularyTest, AddsOffsetsToRows) {
  AddOffsets({1, 3, 5});
  file_.Add<uint8_t>("t2d", "BOOL", {8}, {0, 1, 0, 0, 1, 0, 0, 1});
  const auto vocabulary = Read();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_THAT(vocabulary->ids, ElementsAre(1, 4, 7));
  EXPECT_THAT(vocabulary->rows, IsEmpty());
}

TEST_F(DraftVocabularyTest, SortsIdsAndSaysWhoseRowsTheyAre) {
  AddOffsets({7, 0, 2});
  const auto vocabulary = Read();
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_THAT(vocabulary->ids, ElementsAre(1, 4, 7));
  EXPECT_THAT(vocabulary->rows, ElementsAre(1, 2, 0));
}

TEST_F(DraftVocabularyTest, IsTheTargetsWhereAllOfItIsDrafted) {
  config_.draft_vocab_size = 8;
  for (const bool has_ids : {false, true}) {
    if (has_ids) AddOffsets(std::vector<int64_t>(8, 0));
    const auto vocabulary = Read();
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    EXPECT_THAT(vocabulary->ids, IsEmpty());
    EXPECT_THAT(vocabulary->rows, IsEmpty());
  }
  AddOffsets({1, -1, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(Read()->rows, ElementsAre(1, 0, 2, 3, 4, 5, 6, 7));
}

TEST_F(DraftVocabularyTest, RefusesOtherNumbersAndIdsTwice) {
  ExpectRefused("tensor \"d2t\": not found, wanted with shape [3]");
  AddOffsets({1, 3});
  ExpectRefused("shape: found [2], allowed: [3]");
  AddOffsets({1, 3, 6});
  ExpectRefused("found token 8 of the target for row 2, allowed: from 0 to 7, each once");
  AddOffsets({-1, 3, 5});
  ExpectRefused("found token -1 of the target for row 0");
  AddOffsets({INT64_MIN, INT64_MAX, INT64_MAX});
  ExpectRefused("for row 0");
  AddOffsets({2, 1, 0});
  ExpectRefused("found token 2 of the target for row 1, as for row 0");
  file_.AddFloats("d2t", "F32", {3}, {1, 3, 5});
  ExpectRefused("dtype: found F32, allowed: I64, I32, BOOL");
}

// Ids in place of offsets, say, are seen by the mask.
TEST_F(DraftVocabularyTest, RefusesAMaskThatSaysOtherwise) {
  AddOffsets({1, 3, 5});
  file_.Add<uint8_t>("t2d", "BOOL", {8}, {0, 1, 0, 1, 0, 1, 0, 0});
  ExpectRefused("tensor \"t2d\": found 1 for token 3, allowed: 0, as d2t says");
  file_.Add<uint8_t>("t2d", "BOOL", {7}, {0, 1, 0, 0, 1, 0, 0});
  ExpectRefused("shape: found [7], allowed: [8]");
}

TEST_F(DraftVocabularyTest, TensorsOfAHeadHaveTransformersNames) {
  AddOffsets({1, 3, 5});
  for (const char* const name :
       {"midlayer.hidden_norm.weight", "embed_tokens.weight", "fc.weight"}) {
    file_.AddFloats(name, "F32", {1}, {1.0f});
  }
  std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << file_.Bytes();
  const auto weights = *ArrangeWeights(*Weights::Open(folder_), config_);
  EXPECT_THAT(weights->names(),
              ElementsAre("d2t", "fc.weight", "model.embed_tokens.weight",
                          "model.layers.0.hidden_norm.weight", "model.norm.weight"));
  // A missing tensor is called as the file would.
  const auto missing = weights->Get("model.layers.0.mlp.up_proj.weight", {1}).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("\"midlayer.mlp.up_proj.weight\""));
  // A name that two tensors have.
  file_.AddFloats("layers.0.hidden_norm.weight", "F32", {1}, {1.0f});
  std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << file_.Bytes();
  const auto twice = ArrangeWeights(*Weights::Open(folder_), config_).status();
  EXPECT_THAT(std::string(twice.message()), HasSubstr("has the place of"));
}

}  // namespace
}  // namespace tandem
