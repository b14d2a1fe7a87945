#include "model/checkpoint/gguf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/blocks.h"
#include "model/checkpoint/model_tensors.h"
#include "tests/folder_testing.h"
#include "tests/gguf_builder.h"
#include "tests/golden_file.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<float> Widened(ConstMatrixView matrix) {
  std::vector<float> values;
  std::vector<float> row(matrix.cols);
  const auto* data = static_cast<const std::byte*>(matrix.data);
  for (int r = 0; r < matrix.rows; ++r) {
    WidenRow(data + r * RowBytes(matrix.dtype, matrix.stride), matrix.dtype, matrix.cols,
             row.data());
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

class GgufWeightsTest : public FolderTest {
 protected:
  // Two query heads of 4 elements, one head of keys and values, hidden size 2, and no tensors of
  // the layer.
  static GgufBuilder Model(const std::string& architecture) {
    GgufBuilder file = GgufModel(architecture, {.hidden = 2, .feed_forward = 2, .context = 8});
    file.Set(architecture + ".attention.key_length", GgufUint32(4));
    file.Set(architecture + ".attention.value_length", GgufUint32(4));
    file.AddFloats("token_embd.weight", {2, 3}, {1, 2, 3, 4, 5, 6});
    return file;
  }
  // The same with three experts.
  static GgufBuilder ModelWithExperts() {
    GgufBuilder file = Model("llama");
    file.Set("llama.expert_count", GgufUint32(3));
    file.Set("llama.expert_used_count", GgufUint32(1));
    return file;
  }
  static std::vector<float> Counted(int size) {
    std::vector<float> numbers(size);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    return numbers;
  }
  absl::StatusOr<std::unique_ptr<Weights>> Opened(const GgufBuilder& file) const {
    std::ofstream(Path("m.gguf"), std::ios::binary) << file.Bytes();
    return Weights::Open(Path("m.gguf"));
  }

  absl::StatusOr<std::shared_ptr<const Weights>> Arranged(const GgufBuilder& file) const {
    absl::StatusOr<std::unique_ptr<Weights>> weights = Opened(file);
    if (!weights.ok()) return weights.status();
    const absl::StatusOr<ModelConfig> config = ReadModelConfig(Path("m.gguf"));
    if (!config.ok()) return config.status();
    return ArrangeWeights(*std::move(weights), *config);
  }
};

TEST_F(GgufWeightsTest, GivesTensorsTheNamesOfAFolder) {
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(GoldenGgufPath("llama-small.F32.gguf")));
  const std::vector<std::string> names = weights->names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_THAT(names, SizeIs(3 + 2 * 9));
  for (const char* const name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.1.post_attention_layernorm.weight",
        "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight"}) {
    EXPECT_THAT(names, Contains(name));
    EXPECT_TRUE(weights->Has(name));
  }
  EXPECT_FALSE(weights->Has("token_embd.weight"));
  EXPECT_EQ(weights->num_elements("model.layers.0.mlp.down_proj.weight"), 64 * 96);
  EXPECT_EQ(
      weights->Where("model.norm.weight"),
      absl::StrCat(GoldenGgufPath("llama-small.F32.gguf"), ": tensor \"output_norm.weight\""));
  ASSERT_OK_AND_ASSIGN(const auto norm, weights->Get("model.norm.weight", {64}));
  EXPECT_EQ(norm.rows, 1);
  EXPECT_EQ(norm.cols, 64);
  EXPECT_EQ(norm.dtype, DType::kF32);
}

TEST_F(GgufWeightsTest, BlocksStayBlocksAndApproximateTheirFloats) {
  const auto floats = Weights::Open(GoldenGgufPath("llama-small.F32.gguf"));
  const auto blocks = Weights::Open(GoldenGgufPath("llama-small.Q8_0.gguf"));
  ASSERT_TRUE(floats.ok() && blocks.ok()) << floats.status() << blocks.status();
  for (const char* const name :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}) {
    const std::string tensor = absl::StrCat("model.layers.0.", name, ".weight");
    const int64_t rows = (*floats)->num_elements(tensor) / 64;
    const auto exact = (*floats)->Get(tensor, {rows, 64});
    const auto rounded = (*blocks)->Get(tensor, {rows, 64});
    ASSERT_TRUE(exact.ok() && rounded.ok()) << exact.status() << rounded.status();
    EXPECT_EQ(rounded->dtype, DType::kQ8_0);
    EXPECT_EQ(rounded->stride, 64);
    const std::vector<float> wanted = Widened(*exact);
    const std::vector<float> found = Widened(*rounded);
    float largest = 0;
    for (const float weight : wanted) largest = std::max(largest, std::abs(weight));
    // Tolerance: half a step of 1 / 127 of a block's largest weight, and the rounding of the scale
    // to 11 bits.
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], largest * (0.5f / 127 + 1.0f / 2048)) << tensor << i;
    }
  }
}

TEST_F(GgufWeightsTest, ReordersNeighbouringRowsIntoHalves) {
  GgufBuilder file = Model("llama");
  file.AddFloats("blk.0.attn_q.weight", {2, 8}, Counted(16));
  file.AddFloats("blk.0.attn_k.weight", {2, 4}, Counted(8));
  file.AddFloats("blk.0.attn_v.weight", {2, 4}, Counted(8));
  file.AddFloats("blk.0.attn_q.bias", {8}, Counted(8));
  file.AddFloats("blk.0.attn_k.bias", {4}, Counted(4));
  file.AddFloats("blk.0.attn_v.bias", {4}, Counted(4));
  ASSERT_OK_AND_ASSIGN(const auto weights, Arranged(file));
  const auto get = [&](const std::string& name, std::vector<int64_t> shape) {
    return Widened(*weights->Get(absl::StrCat("model.layers.0.self_attn.", name), shape));
  };
  EXPECT_THAT(get("q_proj.bias", {8}), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(get("k_proj.bias", {4}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(get("v_proj.bias", {4}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(get("q_proj.weight", {8, 2}),
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_THAT(get("k_proj.weight", {4, 2}), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_THAT(get("v_proj.weight", {4, 2}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // A forgotten tensor can be read again.
  weights->Forget("model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(get("k_proj.weight", {4, 2}), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
}

TEST_F(GgufWeightsTest, KeepsTheRowOrderOfOtherArchitectures) {
  for (const char* const architecture : {"qwen3", "gemma3"}) {
    GgufBuilder file = Model(architecture);
    file.AddFloats("blk.0.attn_q.weight", {2, 8}, Counted(16));
    ASSERT_OK_AND_ASSIGN(const auto weights, Arranged(file));
    ASSERT_OK_AND_ASSIGN(const auto matrix,
                         weights->Get("model.layers.0.self_attn.q_proj.weight", {8, 2}));
    EXPECT_EQ(Widened(matrix), Counted(16));
  }
}

TEST_F(GgufWeightsTest, ErrorsUseTheFilesNameOfTheTensor) {
  GgufBuilder file = Model("llama");
  file.AddFloats("output_norm.weight", {2}, {1, 2});
  file.tensors.push_back({"blk.0.attn_norm.weight", {32}, 8, std::string(34, '\0')});
  ASSERT_OK_AND_ASSIGN(const auto weights, Opened(file));
  const auto message = [&](const std::string& name, std::vector<int64_t> shape) {
    return std::string(weights->Get(name, shape).status().message());
  };
  EXPECT_EQ(message("model.layers.12.mlp.up_proj.weight", {2, 3}),
            absl::StrCat(Path("m.gguf"),
                         ": tensor \"blk.12.ffn_up.weight\": not found, wanted with shape [2, 3]"));
  EXPECT_EQ(message("model.norm.weight", {3}),
            absl::StrCat(Path("m.gguf"),
                         ": tensor \"output_norm.weight\": shape: found [2], allowed: [3]"));
  EXPECT_EQ(message("model.norm.weight", {1, 2}),
            absl::StrCat(Path("m.gguf"),
                         ": tensor \"output_norm.weight\": shape: found [2], allowed: [1, 2]"));
  EXPECT_THAT(message("model.layers.0.input_layernorm.weight", {32}),
              HasSubstr("\"blk.0.attn_norm.weight\": dtype: found q8_0, allowed: float32"));
}

TEST_F(GgufWeightsTest, RefusesUnknownTensors) {
  for (const char* const name :
       {"blk.0.attn_surprise.weight", "blk.0.attn_q.scale", "blk.attn_q.weight", "blk.0.weight",
        "blk.", "blk.0.", "lm_head.weight", "model.norm.weight", "token_embd.bias",
        "blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate.1.weight", "blk.0.ffn_gate_inp.weight",
        "blk.0.attn_q_proj.weight", ""}) {
    GgufBuilder file = Model("llama");
    file.AddFloats(name, {2}, {1, 2});
    const absl::Status status = Opened(file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(
        std::string(status.message()),
        StartsWith(absl::StrCat(Path("m.gguf"), ": tensor \"", name, "\": found a tensor")));
  }
  GgufBuilder file = Model("llama");
  file.AddFloats("rope_freqs.weight", {2}, {1, 2});
  const auto weights = Opened(file);
  ASSERT_TRUE(weights.ok()) << weights.status();  // belongs to the configuration
  EXPECT_THAT((*weights)->names(), ElementsAre("model.embed_tokens.weight"));
}

TEST_F(GgufWeightsTest, SplitsStacksIntoExperts) {
  GgufBuilder file = ModelWithExperts();
  file.AddFloats("blk.0.ffn_gate_inp.weight", {2, 3}, Counted(6));
  file.AddFloats("blk.0.ffn_gate_exps.weight", {2, 4, 3}, Counted(24));
  std::string blocks;
  for (char block = 0; block < 6; ++block) blocks += std::string(34, block);
  file.tensors.push_back({"blk.0.ffn_down_exps.weight", {32, 2, 3}, 8, blocks});
  file.AddFloats("blk.0.ffn_up.2.weight", {2, 2},
                 {7, 8, 9, 10});  // a single expert, as in older files
  ASSERT_OK_AND_ASSIGN(const auto weights, Arranged(file));
  EXPECT_THAT(
      weights->names(),
      ElementsAre("model.embed_tokens.weight", "model.layers.0.mlp.experts.0.down_proj.weight",
                  "model.layers.0.mlp.experts.0.gate_proj.weight",
                  "model.layers.0.mlp.experts.1.down_proj.weight",
                  "model.layers.0.mlp.experts.1.gate_proj.weight",
                  "model.layers.0.mlp.experts.2.down_proj.weight",
                  "model.layers.0.mlp.experts.2.gate_proj.weight",
                  "model.layers.0.mlp.experts.2.up_proj.weight", "model.layers.0.mlp.gate.weight"));
  const auto get = [&](const std::string& name, std::vector<int64_t> shape) {
    return *weights->Get(absl::StrCat("model.layers.0.mlp.", name, ".weight"), shape);
  };
  EXPECT_EQ(Widened(get("gate", {3, 2})), Counted(6));
  EXPECT_THAT(Widened(get("experts.0.gate_proj", {4, 2})), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(Widened(get("experts.2.gate_proj", {4, 2})),
              ElementsAre(16, 17, 18, 19, 20, 21, 22, 23));
  EXPECT_THAT(Widened(get("experts.2.up_proj", {2, 2})), ElementsAre(7, 8, 9, 10));
  const ConstMatrixView down = get("experts.1.down_proj", {2, 32});
  EXPECT_EQ(down.dtype, DType::kQ8_0);
  EXPECT_EQ(std::memcmp(down.data, blocks.data() + 2 * 34, 2 * 34), 0);
  const std::string name = "model.layers.0.mlp.experts.1.gate_proj.weight";
  EXPECT_EQ(weights->num_elements(name), 8);
  EXPECT_EQ(weights->Where(name),
            absl::StrCat(Path("m.gguf"), ": tensor \"blk.0.ffn_gate_exps.weight\""));
  weights->Forget(name);
  EXPECT_THAT(Widened(get("experts.1.gate_proj", {4, 2})),
              ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST_F(GgufWeightsTest, ErrorsNameTheStackOfExperts) {
  const std::string stack = "blk.0.ffn_gate_exps.weight";
  const auto where = [&](const std::string& name) {
    return absl::StrCat(Path("m.gguf"), ": tensor \"", name, "\": ");
  };
  const std::vector<std::pair<std::vector<uint64_t>, const char*>> shapes = {
      {{2, 2}, "[2, 2]"},
      {{2, 2, 4}, "[4, 2, 2]"},
      {{2, 2, 2}, "[2, 2, 2]"},
      {{2, 2, 3, 1}, "[1, 3, 2, 2]"},
      {{3}, "[3]"}};
  for (const auto& [sizes, shown] : shapes) {
    GgufBuilder file = ModelWithExperts();
    uint64_t count = 1;
    for (const uint64_t size : sizes) count *= size;
    file.AddFloats(stack, sizes, Counted(static_cast<int>(count)));
    EXPECT_EQ(std::string(Opened(file).status().message()),
              absl::StrCat(where(stack), "shape: found ", shown,
                           ", allowed: [3, rows, columns], of 3 experts"));
  }
  GgufBuilder file = ModelWithExperts();
  file.AddFloats(stack, {2, 4, 3}, Counted(24));
  ASSERT_OK_AND_ASSIGN(const auto weights, Opened(file));
  const auto message = [&](const std::string& name, std::vector<int64_t> shape) {
    const std::string whole = absl::StrCat("model.layers.0.mlp.experts.", name, ".weight");
    return std::string(weights->Get(whole, shape).status().message());
  };
  EXPECT_EQ(message("1.gate_proj", {2, 4}),
            absl::StrCat(where(stack), "shape: found [3, 4, 2], allowed: [3, 2, 4]"));
  EXPECT_EQ(message("3.gate_proj", {4, 2}),
            absl::StrCat(where(stack), "found 3 experts, allowed: more than 3, as the ",
                         "configuration next to it says"));
  EXPECT_EQ(message("1.down_proj", {4, 2}), absl::StrCat(where("blk.0.ffn_down_exps.weight"),
                                                         "not found, wanted with shape [3, 4, 2]"));
  file.AddFloats("blk.0.ffn_gate.1.weight", {2, 4}, Counted(8));
  EXPECT_EQ(std::string(Opened(file).status().message()),
            absl::StrCat(where("blk.0.ffn_gate.1.weight"), "has the place of ", Path("m.gguf"),
                         ": tensor \"", stack, "\""));
  file = ModelWithExperts();
  file.AddFloats("blk.0.ffn_gate.1.weight", {2, 4}, Counted(8));
  ASSERT_OK_AND_ASSIGN(const auto apart, Opened(file));
  EXPECT_EQ(
      std::string(
          apart->Get("model.layers.0.mlp.experts.2.gate_proj.weight", {4, 2}).status().message()),
      absl::StrCat(where("blk.0.ffn_gate.2.weight"), "not found, wanted with shape [4, 2]"));
  for (const char* const name :
       {"blk.0.ffn_gate_exps.bias", "blk.0.ffn_gate.x.weight", "blk.0.ffn_gate..weight",
        "blk.0.ffn_gate_inp.bias", "blk.0.ffn_gate_up_exps.weight", "blk.0.attn_q.1.weight"}) {
    file = ModelWithExperts();
    file.AddFloats(name, {2}, {1, 2});
    EXPECT_THAT(
        std::string(Opened(file).status().message()),
        StartsWith(absl::StrCat(where(name), "found a tensor, allowed: the tensors of llama")));
  }
  file = ModelWithExperts();
  file.Set("general.architecture", GgufString("qwen3moe"));
  EXPECT_THAT(std::string(Opened(file).status().message()),
              HasSubstr("key \"qwen3moe.expert_count\": found nothing, allowed: an integer"));
}

TEST_F(GgufWeightsTest, SplitsJoinedTensors) {
  GgufBuilder file = Model("glm4");
  file.AddFloats("blk.0.attn_qkv.weight", {2, 16}, Counted(32));
  file.AddFloats("blk.0.ffn_up.weight", {2, 4}, Counted(8));
  ASSERT_OK_AND_ASSIGN(const auto weights, Arranged(file));
  const auto get = [&](const std::string& name, std::vector<int64_t> shape) {
    return Widened(*weights->Get(absl::StrCat("model.layers.0.", name, ".weight"), shape));
  };
  EXPECT_THAT(get("self_attn.q_proj", {8, 2}),
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_THAT(get("self_attn.k_proj", {4, 2}), ElementsAre(16, 17, 20, 21, 18, 19, 22, 23));
  EXPECT_THAT(get("self_attn.v_proj", {4, 2}), ElementsAre(24, 25, 26, 27, 28, 29, 30, 31));
  EXPECT_THAT(get("mlp.gate_proj", {2, 2}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(get("mlp.up_proj", {2, 2}), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(weights->Where("model.layers.0.mlp.gate_proj.weight"),
            absl::StrCat(Path("m.gguf"), ": tensor \"blk.0.ffn_up.weight\""));
  file.AddFloats("blk.0.attn_q.weight", {2, 8}, Counted(16));
  EXPECT_THAT(std::string(Arranged(file).status().message()), HasSubstr("has the place of"));
}

TEST_F(GgufWeightsTest, RefusesProjectionsWhoseRowsAreNotWholeHeads) {
  for (const uint64_t rows : {1, 6, 9}) {
    GgufBuilder file = Model("llama");
    file.AddFloats("blk.0.attn_q.weight", {2, rows}, Counted(2 * static_cast<int>(rows)));
    ASSERT_OK_AND_ASSIGN(const auto weights, Arranged(file));
    const auto status = weights->Get("model.layers.0.self_attn.q_proj.weight", {8, 2}).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("\"blk.0.attn_q.weight\": shape: found ["));
  }
}

TEST_F(GgufWeightsTest, RefusesAnArchitectureThatContradictsTheConfiguration) {
  ASSERT_OK_AND_ASSIGN(auto weights, Opened(Model("qwen3")));
  ModelConfig config = *ReadModelConfig(Path("m.gguf"));
  config.family = "mistral";
  const auto status = ArrangeWeights(std::move(weights), config).status();
  EXPECT_EQ(
      std::string(status.message()),
      absl::StrCat(Path("m.gguf"), ": key \"general.architecture\": found \"qwen3\", ",
                   "allowed: llama, as the configuration next to it describes a mistral model"));
}

TEST_F(GgufWeightsTest, ReadsSplitModels) {
  GgufBuilder first = Model("llama");
  GgufBuilder second;
  const std::string count = GgufValue(2, GgufNumber(uint16_t{2}));
  first.Set("split.no", GgufValue(2, GgufNumber(uint16_t{0})));
  first.Set("split.count", count);
  second.Set("split.no", GgufValue(2, GgufNumber(uint16_t{1})));
  second.Set("split.count", count);
  second.AddFloats("output_norm.weight", {2}, {7, 8});
  std::ofstream(Path("m-00001-of-00002.gguf"), std::ios::binary) << first.Bytes();
  std::ofstream(Path("m-00002-of-00002.gguf"), std::ios::binary) << second.Bytes();
  const auto weights = Weights::Open(folder_);  // the only model in it
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_THAT(Widened(*(*weights)->Get("model.norm.weight", {2})), ElementsAre(7, 8));
  EXPECT_EQ((*weights)->Where("model.norm.weight"),
            absl::StrCat(Path("m-00002-of-00002.gguf"), ": tensor \"output_norm.weight\""));
}

}  // namespace
}  // namespace tandem
