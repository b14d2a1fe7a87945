
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/gguf_weights.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_tensors.h"
#include "tests/gguf_builder.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t kInt64 = 27;

// A head as llama.cpp's converter lays one out: hidden size 4, one attention head of 4, a target of
// hidden size 6 with 9 tokens, of which the head's logits cover 2.
GgufBuilder SampleHead() {
  GgufBuilder file =
      GgufModel("eagle3", {.hidden = 4, .feed_forward = 5, .context = 64, .heads = 1});
  file.Set("eagle3.vocab_size", GgufUint32(9));
  file.Set("eagle3.extract_layers", GgufArray(5, 3, GgufNumbers<int32_t>({2, 5, 7})));
  file.Set("eagle3.target_hidden_size", GgufUint32(6));
  file.Set("eagle3.norm_before_residual", GgufBool(true));
  const auto add = [&](const std::string& name, std::vector<uint64_t> sizes) {
    const uint64_t count =
        std::accumulate(sizes.begin(), sizes.end(), uint64_t{1}, std::multiplies<>());
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    file.AddFloats(name, std::move(sizes), values);
  };
  add("fc.weight", {18, 4});
  add("blk.0.attn_norm.weight", {4});
  add("blk.0.attn_norm_2.weight", {4});
  add("blk.0.attn_q.weight", {8, 4});
  add("blk.0.attn_k.weight", {8, 4});
  add("blk.0.attn_v.weight", {8, 4});
  add("blk.0.attn_output.weight", {4, 4});
  add("blk.0.ffn_norm.weight", {4});
  add("blk.0.ffn_gate.weight", {4, 5});
  add("blk.0.ffn_up.weight", {4, 5});
  add("blk.0.ffn_down.weight", {5, 4});
  add("output_norm.weight", {4});
  add("output.weight", {4, 2});
  file.tensors.push_back({"d2t", {2}, kInt64, GgufNumbers<int64_t>({3, 8})});
  return file;
}

struct OpenHead {
  std::string bytes;  // backs `weights`
  ModelConfig config;
  std::shared_ptr<const Weights> weights;
};

absl::StatusOr<OpenHead> ReadHeadOf(const GgufBuilder& builder) {
  OpenHead read;
  read.bytes = builder.Bytes();
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(read.bytes.data()),
                                          read.bytes.size());
  auto file = GgufFile::Parse(bytes, "x.gguf");
  if (!file.ok()) return file.status();
  auto config = ReadGgufConfig(**file);
  if (!config.ok()) return config.status();
  read.config = *std::move(config);
  auto weights = WeightsOf(*std::move(file));
  if (!weights.ok()) return weights.status();
  read.weights = *ArrangeWeights(*std::move(weights), read.config);
  CompleteHead(*read.weights, &read.config);
  return read;
}

std::string ErrorOfHead(const GgufBuilder& builder) {
  return std::string(ReadHeadOf(builder).status().message());
}

GgufBuilder::Tensor* TensorOf(GgufBuilder* file, const std::string& name) {
  for (GgufBuilder::Tensor& tensor : file->tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void RemoveTensor(GgufBuilder* file, const std::string& name) {
  file->tensors.erase(file->tensors.begin() + (TensorOf(file, name) - file->tensors.data()));
}

TEST(GgufHead, ReadsKeysAndTensors) {
  ASSERT_OK_AND_ASSIGN(const auto read, ReadHeadOf(SampleHead()));
  const ModelConfig& config = read.config;
  EXPECT_EQ(config.family, "eagle3");
  EXPECT_EQ(config.state_input, StateInput::kNextToEmbedding);
  EXPECT_EQ(config.vocab_size, 9);
  EXPECT_EQ(config.draft_vocab_size, 2);
  EXPECT_EQ(config.target_hidden_size, 6);
  EXPECT_THAT(config.target_layers, ElementsAre(2, 5, 7));
  EXPECT_EQ(config.num_states, 3);
  EXPECT_TRUE(config.norms_residual);
  EXPECT_FALSE(config.norms_states);
  EXPECT_FALSE(config.has_own_embedding);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_THAT(*read.weights->GetIntegers("d2t", 2), ElementsAre(3, 8));  // absolute ids
  EXPECT_TRUE(read.weights->Get("fc.weight", {4, 18}).ok());
  EXPECT_TRUE(read.weights->Get("model.layers.0.hidden_norm.weight", {4}).ok());
  // Neighbouring rows 2 i and 2 i + 1 of the file become rows i and i + 2.
  ASSERT_OK_AND_ASSIGN(const auto query,
                       read.weights->Get("model.layers.0.self_attn.q_proj.weight", {4, 8}));
  std::vector<float> first_elements;
  for (int row = 0; row < 4; ++row) {
    first_elements.push_back(static_cast<const float*>(query.data)[8 * row]);
  }
  EXPECT_THAT(first_elements, ElementsAre(0, 16, 8, 24));
}

TEST(GgufHead, UsesDefaultsForAbsentKeysAndTensors) {
  GgufBuilder file = SampleHead();
  file.Set("eagle3.extract_layers", "");
  file.Set("eagle3.target_hidden_size", "");
  file.Set("eagle3.norm_before_residual", "");
  file.Set("eagle3.vocab_size", "");
  file.Set("tokenizer.ggml.tokens", GgufStrings({"a", "b", "c"}));
  RemoveTensor(&file, "output.weight");
  RemoveTensor(&file, "d2t");
  ASSERT_OK_AND_ASSIGN(const auto read, ReadHeadOf(file));
  EXPECT_EQ(read.config.vocab_size, 3);
  EXPECT_EQ(read.config.draft_vocab_size, 3);
  EXPECT_EQ(read.config.target_hidden_size, 4);
  EXPECT_THAT(read.config.target_layers, IsEmpty());
  EXPECT_EQ(read.config.num_states, 3);
  EXPECT_FALSE(read.config.norms_residual);
  EXPECT_TRUE(read.config.tied_embeddings);
  EXPECT_EQ(read.weights->GetIntegers("d2t", 3).status().code(), absl::StatusCode::kNotFound);
}

TEST(GgufHead, ReadsAnOptionalEmbeddingAndStatesNorm) {
  GgufBuilder file = SampleHead();
  file.Set("eagle3.vocab_size", "");
  file.AddFloats("token_embd.weight", {4, 9}, std::vector<float>(36));
  file.AddFloats("input_norm.weight", {18}, std::vector<float>(18));
  ASSERT_OK_AND_ASSIGN(const auto read, ReadHeadOf(file));
  EXPECT_TRUE(read.config.has_own_embedding);
  EXPECT_TRUE(read.config.norms_states);
  EXPECT_EQ(read.config.vocab_size, 9);
}

TEST(GgufHead, ErrorsNameTheKeyOrTensor) {
  const auto with_key = [](const std::string& key, const std::string& value) {
    GgufBuilder file = SampleHead();
    file.Set(key, value);
    return ErrorOfHead(file);
  };
  EXPECT_THAT(with_key("eagle3.block_count", GgufUint32(2)),
              HasSubstr("key \"eagle3.block_count\": found 2, allowed: 1"));
  for (const std::vector<int32_t>& layers :
       {std::vector<int32_t>{}, {1, -1}, {10001}, std::vector<int32_t>(65, 1)}) {
    EXPECT_THAT(with_key("eagle3.extract_layers", GgufArray(5, layers.size(), GgufNumbers(layers))),
                HasSubstr("allowed: from 1 to 64 layers up to 10000"));
  }
  EXPECT_THAT(with_key("eagle3.target_hidden_size", GgufUint32(0)),
              HasSubstr("eagle3.target_hidden_size"));
  EXPECT_THAT(with_key("eagle3.vocab_size", GgufUint32(1)),
              HasSubstr("\"output.weight\": found shape [2, 4], allowed: at most 1 rows"));
  EXPECT_THAT(with_key("eagle3.vocab_size", ""), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(GgufHead, OnlyIdsAreIntegers) {
  GgufBuilder file = SampleHead();
  TensorOf(&file, "output_norm.weight")->type = kInt64;
  TensorOf(&file, "output_norm.weight")->bytes.resize(32);
  auto read = ReadHeadOf(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(std::string(read->weights->Get("model.norm.weight", {4}).status().message()),
              HasSubstr("\"output_norm.weight\": dtype: found int64, allowed: float32"));
  EXPECT_THAT(std::string(read->weights->GetIntegers("d2t", 3).status().message()),
              HasSubstr("\"d2t\": shape: found [2], allowed: [3]"));
  file = SampleHead();
  *TensorOf(&file, "d2t") = {"d2t", {2}, 0, GgufNumbers<float>({3, 8})};
  read = ReadHeadOf(file);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(std::string(read->weights->GetIntegers("d2t", 2).status().message()),
              HasSubstr("\"d2t\": dtype: found float32, allowed: int64"));
}

// A draft head's tensors are refused in other models.
TEST(GgufHead, OtherModelsRefuseItsTensors) {
  GgufBuilder file = SampleHead();
  for (auto& [key, value] : file.keys) {
    if (key == "general.architecture") value = GgufString("llama");
    if (key.substr(0, 6) == "eagle3") key = absl::StrCat("llama", key.substr(6));
  }
  file.AddFloats("token_embd.weight", {4, 9}, std::vector<float>(36));
  EXPECT_THAT(ErrorOfHead(file), HasSubstr("tensor \"fc.weight\": found a tensor, allowed"));
}

}  // namespace
}  // namespace tandem
