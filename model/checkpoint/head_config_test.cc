#include "model/checkpoint/head_config.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/model_tensors.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/safetensors_builder.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using HeadJson = SortedJson;

// Reads a configuration of tests/data/heads.
HeadJson HeadFile(const std::string& name) {
  const auto text = ReadFile(absl::StrCat(SourcePath("tests/data/heads/"), name, "/config.json"));
  EXPECT_TRUE(text.ok()) << text.status();
  return HeadJson::parse(*text);
}

absl::StatusOr<ModelConfig> ParsedHead(const HeadJson& config,
                                       const std::vector<std::string>& allowed = {}) {
  return ParseModelConfig(config.dump(), "config.json", std::nullopt, "", allowed);
}

ModelConfig ReadHeadFile(const HeadJson& config) {
  const auto head = ParsedHead(config);
  EXPECT_TRUE(head.ok()) << head.status();
  return head.ok() ? *head : ModelConfig();
}

HeadJson With(HeadJson config, const HeadJson& changes) {
  config.update(changes);
  return config;
}

// Expects an error that names the key.
void ExpectWrongHead(const HeadJson& config, const std::string& key) {
  const absl::Status status = ParsedHead(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("json: ", key, ": found ")))
      << status << "\nwanted: " << key;
}

TEST(HeadConfig, ReadsTheFlatLayout) {
  const ModelConfig c = ReadHeadFile(HeadFile("eagle3-flat"));
  EXPECT_EQ(c.family, "eagle3");
  EXPECT_EQ(c.state_input, StateInput::kNextToEmbedding);
  EXPECT_EQ(c.draft_vocab_size, 64);
  EXPECT_EQ(c.target_hidden_size, 24);
  EXPECT_THAT(c.target_layers, testing::IsEmpty());
  EXPECT_EQ(c.num_states, 3);
  EXPECT_EQ(c.read_state_size(), 72);
  EXPECT_EQ(c.fc_inputs(), 72);
  EXPECT_EQ(c.attention_inputs(), 48);
  EXPECT_FALSE(c.norms_residual || c.norms_states || c.has_other_parts);
  EXPECT_EQ(c.rope.theta, 500.0);
}

TEST(HeadConfig, RecognisesTheOlderForm) {
  HeadJson config = HeadFile("eagle3-residual");
  EXPECT_EQ(config["architectures"], HeadJson({"LlamaForCausalLM"}));
  const ModelConfig c = ReadHeadFile(config);
  EXPECT_EQ(c.state_input, StateInput::kNextToEmbedding);
  EXPECT_TRUE(c.norms_residual);
  EXPECT_EQ(c.rope.theta, 10000.0);  // the default of the published code
  EXPECT_EQ(ReadHeadFile(With(config, {{"rope_theta", nullptr}})).rope.theta, 10000.0);
  ExpectWrongHead(With(config, {{"num_hidden_layers", 2}}), "draft_vocab_size");
}

TEST(HeadConfig, ReadsSpeculatorsLayout) {
  const HeadJson config = HeadFile("eagle3-speculators");
  const ModelConfig c = ReadHeadFile(config);
  EXPECT_EQ(c.state_input, StateInput::kNextToEmbedding);
  EXPECT_TRUE(c.norms_residual && c.norms_states);
  EXPECT_THAT(c.target_layers, testing::ElementsAre(3, 0));
  EXPECT_EQ(c.num_states, 2);
  EXPECT_EQ(c.num_heads, 6);
  EXPECT_FALSE(c.has_other_parts);
  // Without a list of layers there are three states.
  const HeadJson no_list = With(config, {{"eagle_aux_hidden_state_layer_ids", nullptr}});
  EXPECT_EQ(ReadHeadFile(no_list).num_states, 3);

  ExpectWrongHead(With(config, {{"speculators_model_type", "peagle"}}), "speculators_model_type");
  ExpectWrongHead(With(config, {{"speculators_model_type", nullptr}}), "speculators_model_type");
  ExpectWrongHead(With(config, {{"transformer_layer_config", 1}}), "transformer_layer_config");
  ExpectWrongHead(With(config, {{"norm_after_fc", true}}), "norm_after_fc");
  HeadJson nested = config;
  nested["transformer_layer_config"]["model_type"] = "qwen3";
  ExpectWrongHead(nested, "transformer_layer_config.model_type");
  nested["transformer_layer_config"]["model_type"] = "llama";
  nested["transformer_layer_config"]["some_other_norm"] = true;
  ExpectWrongHead(nested, "transformer_layer_config.some_other_norm");
  EXPECT_TRUE(ParsedHead(nested, {"some_other_norm"}).ok());
}

TEST(HeadConfig, ReadsTheOneLayerForm) {
  const HeadJson config = HeadFile("one-layer");
  const ModelConfig c = ReadHeadFile(config);
  EXPECT_EQ(c.family, "one_layer_head");
  EXPECT_EQ(c.state_input, StateInput::kFused);
  EXPECT_EQ(c.num_states, 1);
  EXPECT_EQ(c.fc_inputs(), 48);
  EXPECT_EQ(c.attention_inputs(), 24);
  ExpectWrongHead(With(config, {{"norm_before_residual", true}}), "norm_before_residual");
  ExpectWrongHead(With(config, {{"target_hidden_size", 48}}), "target_hidden_size");
}

// SGLang numbers the outputs of layers; other projects number the inputs.
TEST(HeadConfig, ReadsLayersInBothNumberings) {
  const HeadJson config = HeadFile("eagle3-flat");
  const HeadJson inputs = With(config, {{"eagle_aux_hidden_state_layer_ids", {2, 15, 27}}});
  EXPECT_THAT(ReadHeadFile(inputs).target_layers, testing::ElementsAre(2, 15, 27));
  const HeadJson eagle = {{"eagle_aux_hidden_state_layer_ids", {1, 14, 26}},
                          {"use_aux_hidden_state", true}};
  EXPECT_THAT(ReadHeadFile(With(config, {{"eagle_config", eagle}})).target_layers,
              testing::ElementsAre(2, 15, 27));
  EXPECT_THAT(ReadHeadFile(With(inputs, {{"eagle_config", eagle}})).target_layers,
              testing::ElementsAre(2, 15, 27));
  HeadJson other = eagle;
  other["eagle_aux_hidden_state_layer_ids"] = {2, 15, 27};
  ExpectWrongHead(With(inputs, {{"eagle_config", other}}),
                  "eagle_config.eagle_aux_hidden_state_layer_ids");
  ExpectWrongHead(With(config, {{"eagle_config", {{"use_aux_hidden_state", false}}}}),
                  "eagle_config.use_aux_hidden_state");
  ExpectWrongHead(With(config, {{"eagle_config", {{"use_mtp_layernorm", true}}}}),
                  "eagle_config.use_mtp_layernorm");
  ExpectWrongHead(With(config, {{"eagle_config", {{"parallel_draft_step", 4}}}}),
                  "eagle_config.parallel_draft_step");
  for (const HeadJson& list :
       {HeadJson("2"), HeadJson({-1}), HeadJson({1.5}), HeadJson(std::vector<int>(65, 1))}) {
    ExpectWrongHead(With(config, {{"eagle_aux_hidden_state_layer_ids", list}}),
                    "eagle_aux_hidden_state_layer_ids");
  }
}

TEST(HeadConfig, RefusesInvalidHeadsByKey) {
  const HeadJson config = HeadFile("eagle3-flat");
  ExpectWrongHead(With(config, {{"num_hidden_layers", 2}}), "num_hidden_layers");
  ExpectWrongHead(With(config, {{"draft_vocab_size", 294}}), "draft_vocab_size");
  ExpectWrongHead(With(config, {{"draft_vocab_size", 0}}), "draft_vocab_size");
  ExpectWrongHead(With(config, {{"target_hidden_size", 1 << 20}}), "target_hidden_size");
  ExpectWrongHead(With(config, {{"model_type", "qwen3"}}), "model_type");
  ExpectWrongHead(With(config, {{"hidden_act", "gelu"}}), "hidden_act");
  ExpectWrongHead(With(config, {{"another_norm", true}}), "another_norm");
  const std::vector<double> divisors(4, 1.0);
  ExpectWrongHead(
      With(config,
           {{"rope_scaling",
             {{"rope_type", "longrope"}, {"short_factor", divisors}, {"long_factor", divisors}}}}),
      "rope_type");
}

}  // namespace

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
  ASSERT_OK_AND_ASSIGN(const auto vocabulary, Read());
  EXPECT_THAT(vocabulary.ids, ElementsAre(1, 4, 7));
  EXPECT_THAT(vocabulary.rows, IsEmpty());
}

TEST_F(DraftVocabularyTest, SortsIdsAndKeepsTheirRows) {
  AddOffsets({7, 0, 2});
  ASSERT_OK_AND_ASSIGN(const auto vocabulary, Read());
  EXPECT_THAT(vocabulary.ids, ElementsAre(1, 4, 7));
  EXPECT_THAT(vocabulary.rows, ElementsAre(1, 2, 0));
}

TEST_F(DraftVocabularyTest, IsEmptyIfTheHeadCoversTheWholeVocabulary) {
  config_.draft_vocab_size = 8;
  for (const bool has_ids : {false, true}) {
    if (has_ids) AddOffsets(std::vector<int64_t>(8, 0));
    ASSERT_OK_AND_ASSIGN(const auto vocabulary, Read());
    EXPECT_THAT(vocabulary.ids, IsEmpty());
    EXPECT_THAT(vocabulary.rows, IsEmpty());
  }
  AddOffsets({1, -1, 0, 0, 0, 0, 0, 0});
  EXPECT_THAT(Read()->rows, ElementsAre(1, 0, 2, 3, 4, 5, 6, 7));
}

TEST_F(DraftVocabularyTest, RefusesInvalidAndDuplicateIds) {
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

// The mask shows mistakes such as ids in place of offsets.
TEST_F(DraftVocabularyTest, RefusesAMaskThatContradictsTheIds) {
  AddOffsets({1, 3, 5});
  file_.Add<uint8_t>("t2d", "BOOL", {8}, {0, 1, 0, 1, 0, 1, 0, 0});
  ExpectRefused("tensor \"t2d\": found 1 for token 3, allowed: 0, as d2t says");
  file_.Add<uint8_t>("t2d", "BOOL", {7}, {0, 1, 0, 0, 1, 0, 0});
  ExpectRefused("shape: found [7], allowed: [8]");
}

TEST_F(DraftVocabularyTest, RenamesTheTensorsOfAHead) {
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
  // Errors use the file's name of a missing tensor.
  const auto missing = weights->Get("model.layers.0.mlp.up_proj.weight", {1}).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("\"midlayer.mlp.up_proj.weight\""));
  // Two tensors with the same name after renaming.
  file_.AddFloats("layers.0.hidden_norm.weight", "F32", {1}, {1.0f});
  std::ofstream(folder_ + "/model.safetensors", std::ios::binary) << file_.Bytes();
  const auto twice = ArrangeWeights(*Weights::Open(folder_), config_).status();
  EXPECT_THAT(std::string(twice.message()), HasSubstr("has the place of"));
}

}  // namespace

}  // namespace tandem
