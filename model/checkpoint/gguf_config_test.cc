#include "model/checkpoint/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/checkpoint/gguf_keys.h"
#include "model/checkpoint/model_families.h"
#include "tests/gguf_builder.h"
#include "tests/golden_file.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A model of two heads of 16 elements, with everything that the configuration needs.
GgufBuilder SmallGguf(const std::string& architecture = "llama") {
  GgufBuilder file = GgufModel(architecture, {.layers = 3});
  const auto set = [&](const std::string& key, const std::string& value) {
    file.Set(absl::StrCat(architecture, ".", key), value);
  };
  const bool is_cohere = architecture == "cohere2";
  if (is_cohere) set("attention.layer_norm_rms_epsilon", "");
  if (is_cohere) set("attention.layer_norm_epsilon", GgufFloat32(1e-5f));
  if (is_cohere) set("attention.sliding_window", GgufUint32(16));
  if (is_cohere || architecture == "granite") set("logit_scale", GgufFloat32(1));
  file.AddFloats("token_embd.weight", {32, 10}, std::vector<float>(320));
  if (architecture == "qwen3moe") {
    set("expert_count", GgufUint32(8));
    set("expert_used_count", GgufUint32(3));
  }
  if (architecture == "olmo2") file.AddFloats("output.weight", {32, 10}, std::vector<float>(320));
  return file;
}

absl::StatusOr<ModelConfig> ConfigOf(const GgufBuilder& builder) {
  const std::string bytes = builder.Bytes();
  const auto file =
      GgufFile::Parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf");
  if (!file.ok()) return file.status();
  return ReadGgufConfig(**file);
}

void ExpectConfigError(const GgufBuilder& builder, absl::StatusCode code, const std::string& says) {
  const absl::Status status = ConfigOf(builder).status();
  EXPECT_EQ(status.code(), code) << status << ", not: " << says;
  EXPECT_THAT(std::string(status.message()), StartsWith(absl::StrCat("x.gguf: ", says)));
}

// Expects an error with `value` for `key`; an empty value removes the key.
void ExpectConfigError(const std::string& key, const std::string& value, const std::string& says) {
  GgufBuilder builder = SmallGguf();
  builder.Set(key, value);
  ExpectConfigError(
      builder, value.empty() ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
      absl::StrCat("key \"", key, "\": ", says));
}

TEST(GgufConfig, ReadsTheGoldenModel) {
  ASSERT_OK_AND_ASSIGN(const auto config, ReadModelConfig(GoldenGgufPath("llama-small.Q8_0.gguf")));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vocab_size, 500);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rms_norm_epsilon, 1e-5f);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias ||
               config.query_key_norm != QueryKeyNorm::kNone);
  EXPECT_THAT(config.windows, ElementsAre(0, 0));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(GgufConfig, UsesTheDefaultsOfTheReference) {
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.attention.head_count_kv", "");
  ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
  EXPECT_EQ(config.vocab_size, 10);
}

TEST(GgufConfig, ReadsEveryArchitecture) {
  constexpr const char* kFamilies[][2] = {
      {"llama", "llama"},        {"qwen2", "qwen2"},   {"qwen3", "qwen3"},
      {"qwen3moe", "qwen3_moe"}, {"gemma2", "gemma2"}, {"gemma3", "gemma3_text"},
      {"phi3", "phi3"},          {"olmo2", "olmo2"},   {"granite", "granite"},
      {"smollm3", "smollm3"},    {"glm4", "glm4"},     {"cohere2", "cohere2"}};
  std::vector<std::string> names;
  for (const auto& [architecture, family] : kFamilies) {
    ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(SmallGguf(architecture)));
    EXPECT_EQ(config.family, family);
    EXPECT_EQ(config.query_key_norm, FamilyOfType(family)->form.query_key_norm);
    EXPECT_EQ(config.normalizes_outputs, FamilyOfType(family)->form.normalizes_outputs);
    names.emplace_back(architecture);
  }
  ExpectConfigError("general.architecture", GgufString("gpt99"),
                    absl::StrCat("found \"gpt99\", allowed: ", absl::StrJoin(names, ", ")));
  ExpectConfigError("general.architecture", GgufUint32(1), "found 1, allowed: a string");
  ExpectConfigError("general.architecture", "", "found nothing, allowed: a string");
  ExpectConfigError(GgufBuilder(), absl::StatusCode::kNotFound, "key \"general.architecture\"");
}

// Returns the configuration with one key changed; `key` is without the architecture.
ModelConfig With(const std::string& architecture, const std::string& key,
                 const std::string& value) {
  GgufBuilder builder = SmallGguf(architecture);
  builder.Set(absl::StrCat(architecture, ".", key), value);
  const auto config = ConfigOf(builder);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}
void ExpectErrorWith(const std::string& architecture, const std::string& key,
                     const std::string& value, const std::string& says) {
  GgufBuilder builder = SmallGguf(architecture);
  const std::string whole = absl::StrCat(architecture, ".", key);
  builder.Set(whole, value);
  ExpectConfigError(
      builder, value.empty() ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
      absl::StrCat("key \"", whole, "\": ", says));
}

TEST(GgufConfig, WindowsFollowTheArchitecture) {
  const std::string window = "attention.sliding_window";
  EXPECT_THAT(ConfigOf(SmallGguf("gemma2"))->windows, ElementsAre(4096, 0, 4096));
  EXPECT_THAT(With("gemma2", window, GgufUint32(8)).windows, ElementsAre(8, 0, 8));
  EXPECT_THAT(ConfigOf(SmallGguf("gemma3"))->windows, Each(0));
  EXPECT_THAT(With("gemma3", window, GgufUint32(8)).windows, Each(8));  // the sixth sees all
  EXPECT_THAT(With("gemma3", window, GgufUint32(0)).windows, Each(0));
  EXPECT_THAT(With("cohere2", window, GgufUint32(8)).windows, Each(8));
  EXPECT_THAT(With("phi3", window, GgufUint32(8)).windows, Each(8));
  EXPECT_THAT(With("phi3", window, GgufUint32(0)).windows, Each(0));
  for (const char* const architecture : {"llama", "qwen2", "qwen3", "granite", "smollm3", "glm4"}) {
    EXPECT_THAT(With(architecture, window, GgufUint32(8)).windows, Each(0)) << architecture;
  }
  ExpectErrorWith("cohere2", window, "", "found nothing, allowed: an integer from 1");
  ExpectErrorWith("cohere2", window, GgufUint32(0), "found 0, allowed: an integer from 1");
  ExpectErrorWith("gemma2", window, GgufUint32(0), "found 0, allowed: an integer from 1");
  ExpectErrorWith("olmo2", window, GgufUint32(8), "found 8, allowed: 0 (not implemented");

  const std::string pattern = window + "_pattern";
  EXPECT_THAT(With("gemma2", pattern, GgufUint32(3)).windows, ElementsAre(4096, 4096, 0));
  EXPECT_THAT(With("gemma2", pattern, GgufUint32(1)).windows, Each(0));
  EXPECT_THAT(With("gemma2", pattern, GgufUint32(0)).windows, Each(4096));
  EXPECT_THAT(With("gemma2", pattern, GgufArray(7, 3, std::string("\0\1\1", 3))).windows,
              ElementsAre(0, 4096, 4096));
  EXPECT_THAT(With("gemma2", pattern, GgufArray(5, 3, GgufNumbers<int32_t>({1, 0, 0}))).windows,
              ElementsAre(4096, 0, 0));
  ExpectErrorWith("gemma2", pattern, GgufArray(7, 2, std::string("\0\1", 2)),
                  "found 2 elements, allowed: one for each of the 3 layers");
  ExpectErrorWith("gemma2", pattern, GgufStrings({"a"}), "found an array of 1 string");
}

TEST(GgufConfig, ExpertsAreInEveryLayer) {
  GgufBuilder builder = SmallGguf("qwen3moe");
  const ModelConfig qwen = *ConfigOf(builder);
  EXPECT_EQ(qwen.num_experts, 8);
  EXPECT_EQ(qwen.experts_per_row, 3);
  EXPECT_EQ(qwen.expert_size, 64 / 3);  // the reference's default
  EXPECT_TRUE(qwen.renormalises_experts);
  EXPECT_THAT(qwen.expert_layers, ElementsAre(true, true, true));
  EXPECT_EQ(With("qwen3moe", "expert_feed_forward_length", GgufUint32(48)).expert_size, 48);
  EXPECT_EQ(With("qwen3moe", "expert_feed_forward_length", GgufUint32(0)).expert_size, 64 / 3);

  builder = SmallGguf("llama");
  builder.Set("llama.expert_count", GgufUint32(4));
  builder.Set("llama.expert_used_count", GgufUint32(2));
  builder.Set("llama.attention.sliding_window", GgufUint32(8));  // means nothing there
  const ModelConfig mixtral = *ConfigOf(builder);
  EXPECT_EQ(mixtral.family, "mixtral");
  EXPECT_EQ(mixtral.num_experts, 4);
  EXPECT_EQ(mixtral.experts_per_row, 2);
  EXPECT_EQ(mixtral.expert_size, 64);
  EXPECT_TRUE(mixtral.renormalises_experts);
  EXPECT_THAT(mixtral.windows, Each(0));
  EXPECT_EQ(mixtral.rope.theta, 10000);
  builder.AddFloats("blk.0.ffn_gate.bias", {64}, std::vector<float>(64));
  ExpectConfigError(
      builder, absl::StatusCode::kInvalidArgument,
      "tensor \"blk.0.ffn_gate.bias\": found a tensor, allowed: no such tensor in this llama");
  EXPECT_EQ(With("llama", "expert_count", GgufUint32(0)).family, "llama");
}

TEST(GgufConfig, ReadsEqualValuesOfLayersAsOne) {
  const auto threes = [](uint32_t last) {
    return GgufArray(4, 3, GgufNumbers<uint32_t>({2, 2, last}));
  };
  EXPECT_EQ(With("llama", "attention.head_count_kv", threes(2)).num_kv_heads, 2);
  ExpectErrorWith("llama", "attention.head_count_kv", threes(1), "found an array");
  ExpectErrorWith("llama", "attention.head_count_kv", GgufArray(4, 0, ""), "found an array");
}

TEST(GgufConfig, RefusesInvalidExpertCounts) {
  const auto error = [](const char* key, const std::string& value, const char* says) {
    ExpectErrorWith("qwen3moe", key, value, says);
  };
  error("expert_count", "", "found nothing, allowed: an integer from 1 to 4096");
  error("expert_count", GgufUint32(0), "found 0, allowed: an integer from 1 to 4096");
  error("expert_count", GgufUint32(5000), "found 5000, allowed: an integer from 0 to 4096");
  error("expert_count", GgufString("8"), "found the string \"8\", allowed: an integer");
  error("expert_used_count", "", "found nothing, allowed: an integer from 1 to 8");
  error("expert_used_count", GgufUint32(0), "found 0, allowed: an integer from 1 to 8");
  error("expert_used_count", GgufUint32(9), "found 9, allowed: an integer from 1 to 8");
  error("expert_used_count", GgufArray(4, 3, GgufNumbers<uint32_t>({1, 2, 3})), "found an array");
  error("expert_feed_forward_length", GgufUint32(~0u), "found 4294967295, allowed: an integer");
  error("expert_group_count", GgufUint32(2), "found 2, allowed: 0, 1 (not implemented");
  error("expert_weights_norm", GgufBool(false), "found false, allowed: true");
  error("expert_weights_scale", GgufFloat32(2.5f), "found 2.5, allowed: 1 (not implemented");
  error("expert_shared_count", GgufUint32(1), "found 1, allowed: 0 (not implemented");
  error("expert_gating_func", GgufUint32(2), "found 2, allowed: 1 (not implemented");
  EXPECT_EQ(With("qwen3moe", "expert_group_count", GgufUint32(1)).num_experts, 8);
  ExpectErrorWith("llama", "expert_used_count", GgufUint32(2), "found 2, allowed: 0 (not impl");
  // An architecture without experts.
  ExpectErrorWith("qwen3", "expert_count", GgufUint32(8), "found 8, allowed: 0 (not implemented");
}

TEST(GgufConfig, RotationsFollowTheArchitecture) {
  using enum LayerRotation;
  GgufBuilder builder = SmallGguf("gemma3");
  builder.Set("gemma3.rope.freq_base", GgufFloat32(1e6f));
  builder.Set("gemma3.attention.sliding_window", GgufUint32(8));
  builder.Set("gemma3.attention.sliding_window_pattern", GgufUint32(3));
  builder.Set("gemma3.rope.scaling.type", GgufString("linear"));
  builder.Set("gemma3.rope.scaling.factor", GgufFloat32(8));
  EXPECT_THAT(ConfigOf(builder)->rotations, ElementsAre(kLocal, kLocal, kMain));
  EXPECT_EQ(ConfigOf(builder)->rope.theta, 1e6);
  EXPECT_EQ(ConfigOf(builder)->rope.factor, 8);
  EXPECT_EQ(ConfigOf(builder)->local_rope.theta, 1e4);
  EXPECT_EQ(ConfigOf(builder)->local_rope.factor, 1);
  builder.Set("gemma3.rope.freq_base_swa", GgufFloat32(2e4f));
  EXPECT_EQ(ConfigOf(builder)->local_rope.theta, 2e4);
  ExpectErrorWith("gemma2", "rope.freq_base_swa", GgufFloat32(2e4f),
                  "found 20000, allowed: 10000, as gemma2.rope.freq_base says");
  EXPECT_THAT(With("cohere2", "attention.sliding_window_pattern", GgufUint32(2)).rotations,
              ElementsAre(kMain, kNone, kMain));
  builder = SmallGguf("smollm3");
  builder.Set("smollm3.block_count", GgufUint32(5));
  EXPECT_THAT(ConfigOf(builder)->rotations, ElementsAre(kMain, kMain, kMain, kNone, kMain));
  EXPECT_THAT(ConfigOf(SmallGguf("llama"))->rotations, Each(kMain));
}

TEST(GgufConfig, OnlySomeFamiliesRotatePartOfAHead) {
  for (const char* const architecture : {"phi3", "glm4"}) {
    EXPECT_EQ(ConfigOf(SmallGguf(architecture))->rotary_dim, 16);
    EXPECT_EQ(With(architecture, "rope.dimension_count", GgufUint32(12)).rotary_dim, 12);
    ExpectErrorWith(architecture, "rope.dimension_count", GgufUint32(7), "found 7, allowed: an ev");
    ExpectErrorWith(architecture, "rope.dimension_count", GgufUint32(18), "found 18, allowed: an");
  }
  ExpectErrorWith("granite", "rope.dimension_count", GgufUint32(8),
                  "found 8, allowed: 16, the whole head");
  ExpectErrorWith("glm4", "rope.dimension_sections", GgufArray(5, 1, GgufNumber(8)),
                  "found a value, allowed: no such key");
}

TEST(GgufConfig, MultipliersFollowTheArchitecture) {
  const ModelConfig gemma2 = *ConfigOf(SmallGguf("gemma2"));
  EXPECT_EQ(gemma2.embedding_scale, std::sqrt(32.0f));
  EXPECT_EQ(gemma2.attention_soft_cap, 50.0f);
  EXPECT_EQ(gemma2.logits_soft_cap, 30.0f);
  EXPECT_EQ(With("gemma2", "attn_logit_softcapping", GgufFloat32(4)).attention_soft_cap, 4.0f);
  EXPECT_EQ(With("gemma2", "final_logit_softcapping", GgufFloat32(9)).logits_soft_cap, 9.0f);
  ExpectErrorWith("gemma2", "final_logit_softcapping", GgufFloat32(0), "found 0, allowed: a num");
  EXPECT_EQ(ConfigOf(SmallGguf("gemma3"))->attention_soft_cap, 0.0f);
  EXPECT_EQ(ConfigOf(SmallGguf("gemma3"))->logits_soft_cap, 0.0f);
  EXPECT_EQ(With("gemma3", "final_logit_softcapping", GgufFloat32(9)).logits_soft_cap, 9.0f);
  ExpectErrorWith("gemma3", "attn_logit_softcapping", GgufFloat32(4), "found 4, allowed: 0 (not");
  // The models with 27 billion parameters scale scores by hidden / heads.
  GgufBuilder builder = SmallGguf("gemma2");
  builder.Set("gemma2.attention.key_length", GgufUint32(4));
  builder.Set("gemma2.attention.value_length", GgufUint32(4));
  EXPECT_EQ(ConfigOf(builder)->attention_scale, 0.5f);
  builder.Set("gemma2.block_count", GgufUint32(46));
  EXPECT_EQ(ConfigOf(builder)->attention_scale, 0.25f);

  builder = SmallGguf("granite");
  builder.Set("granite.logit_scale", "");
  ExpectConfigError(builder, absl::StatusCode::kNotFound, "key \"granite.logit_scale\": found");
  builder.Set("granite.logit_scale", GgufFloat32(8));
  builder.Set("granite.embedding_scale", GgufFloat32(12));
  builder.Set("granite.residual_scale", GgufFloat32(0.25f));
  builder.Set("granite.attention.scale", GgufFloat32(0.125f));
  const ModelConfig granite = *ConfigOf(builder);
  EXPECT_EQ(granite.logits_scale, 0.125f);
  EXPECT_EQ(granite.embedding_scale, 12.0f);
  EXPECT_EQ(granite.residual_scale, 0.25f);
  EXPECT_EQ(granite.attention_scale, 0.125f);
  EXPECT_EQ(ConfigOf(SmallGguf("granite"))->attention_scale, 0.25f);
  ExpectErrorWith("granite", "logit_scale", GgufFloat32(0), "found 0, allowed: a number from 1e");
  ExpectErrorWith("granite", "rope.scaling.finetuned", GgufBool(false), "found false, allowed: t");
  ExpectErrorWith("granite", "deepstack_mapping", GgufArray(5, 1, GgufNumber(1)),
                  "found a value, all");
  EXPECT_EQ(With("cohere2", "logit_scale", GgufFloat32(0.5f)).logits_scale, 0.5f);
  EXPECT_EQ(With("cohere2", "logit_scale", GgufFloat32(0)).logits_scale, 1.0f);
  EXPECT_EQ(With("llama", "attention.scale", GgufFloat32(0.25f)).attention_scale, 0.25f);
  ExpectErrorWith("llama", "attention.scale", GgufFloat32(0.5f), "found 0.5, allowed: 0.25 (not");
  ExpectErrorWith("smollm3", "residual_scale", GgufFloat32(0.5f), "found 0.5, allowed: 1 (not");
}

TEST(GgufConfig, TheHeadFollowsTheArchitecture) {
  GgufBuilder builder = SmallGguf("olmo2");
  builder.tensors.pop_back();
  ExpectConfigError(builder, absl::StatusCode::kNotFound, "tensor \"output.weight\": not found");
  for (const char* const architecture : {"gemma2", "cohere2"}) {
    builder = SmallGguf(architecture);
    builder.AddFloats("output.weight", {32, 10}, std::vector<float>(320));
    ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                      "tensor \"output.weight\": found a tensor, allowed: no such tensor in this ");
  }
  for (const char* const bias : {"blk.0.attn_output.bias", "blk.0.ffn_gate.bias"}) {
    builder = SmallGguf("qwen2");
    builder.AddFloats(bias, {32}, std::vector<float>(32));
    ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                      absl::StrCat("tensor \"", bias,
                                   "\": found a tensor, allowed: no such tensor in this qwen2"));
  }
  ExpectErrorWith("phi3", "attention.key_length", GgufUint32(8),
                  "found 8, allowed: 16, so that the heads fill phi3.embedding_length 32");
}

TEST(GgufConfig, DependsOnWhichTensorsArePresent) {
  GgufBuilder builder = SmallGguf();
  builder.AddFloats("output.weight", {32, 10}, std::vector<float>(320));
  builder.AddFloats("blk.0.attn_q.bias", {32}, std::vector<float>(32));
  builder.AddFloats("blk.0.attn_output.bias", {32}, std::vector<float>(32));
  builder.AddFloats("blk.0.ffn_gate.bias", {64}, std::vector<float>(64));
  ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_TRUE(config.output_bias);
  EXPECT_TRUE(config.mlp_bias);

  builder.Find("token_embd.weight").name = "other";
  ExpectConfigError(builder, absl::StatusCode::kNotFound,
                    "tensor \"token_embd.weight\": not found");
  builder.Find("other") = {"token_embd.weight", {32}, 0, std::string(128, '\0')};
  ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                    "tensor \"token_embd.weight\": found shape [32], allowed: [at most ");
}

TEST(GgufConfig, RefusesMissingWrongAndAbsurdSizes) {
  ExpectConfigError(kGgufDraftMask, GgufUint32(10), "found 10, allowed: an integer from 0 to 9");
  for (const char* const key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.context_length", "llama.attention.head_count"}) {
    ExpectConfigError(key, "", "found nothing, allowed: an integer from 1 to ");
    ExpectConfigError(key, GgufUint32(0), "found 0, allowed: an integer from 1 to ");
    ExpectConfigError(key, GgufUint32(~0u), "found 4294967295, allowed: an integer from 1 to ");
    ExpectConfigError(key, GgufString("32"), "found the string \"32\", allowed: an integer");
    ExpectConfigError(key, GgufArray(4, 1, GgufNumber(2u)), "found an array of 1 uint32");
  }
  ExpectConfigError("llama.attention.head_count_kv", GgufUint32(0), "found 0");
  ExpectConfigError("llama.attention.layer_norm_rms_epsilon", "", "found nothing");
  ExpectConfigError("llama.attention.layer_norm_rms_epsilon", GgufFloat32(0),
                    "found 0, allowed: a n");
  ExpectConfigError("llama.attention.layer_norm_rms_epsilon", GgufFloat32(NAN),
                    "found nan, allowed");
}

TEST(GgufConfig, RefusesHeadsThatDoNotFit) {
  ExpectConfigError("llama.attention.head_count_kv", GgufUint32(3),
                    "found 3, allowed: a divisor of 2, the value of llama.attention.head_count");
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.attention.head_count", GgufUint32(5));
  ExpectConfigError(
      builder, absl::StatusCode::kInvalidArgument,
      "key \"llama.attention.key_length\": found nothing, allowed: an even integer, as");
  ExpectConfigError("llama.attention.key_length", GgufUint32(15), "found 15, allowed: an even");
  ExpectConfigError("llama.attention.value_length", GgufUint32(8),
                    "found 8, allowed: 16, the length of a key");
  ExpectConfigError("llama.rope.dimension_count", GgufUint32(8),
                    "found 8, allowed: 16, the whole head");
  builder.Set("llama.attention.key_length", GgufUint32(24));
  builder.Set("llama.attention.value_length", GgufUint32(24));
  builder.Set("llama.rope.dimension_count", GgufUint32(24));
  ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
  EXPECT_EQ(config.head_dim, 24);  // all heads together are larger than hidden
}

TEST(GgufConfig, ReadsRope) {
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.rope.freq_base", GgufFloat32(5e5f));
  builder.Set("llama.rope.scaling.factor", GgufFloat32(4));  // the reference's default is linear
  EXPECT_EQ(ConfigOf(builder)->rope.theta, 5e5);
  EXPECT_EQ(ConfigOf(builder)->rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(ConfigOf(builder)->rope.factor, 4);
  builder.Set("llama.rope.scaling.type", GgufString("linear"));
  EXPECT_EQ(ConfigOf(builder)->rope.factor, 4);
  builder.Set("llama.rope.scaling.type", GgufString("none"));
  EXPECT_EQ(ConfigOf(builder)->rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(ConfigOf(builder)->rope.factor, 1);
  builder = SmallGguf();
  builder.Set("llama.rope.scale_linear", GgufFloat32(2));
  EXPECT_EQ(ConfigOf(builder)->rope.factor, 2);
  builder.Set("llama.rope.scaling.factor", GgufFloat32(0));
  EXPECT_EQ(ConfigOf(builder)->rope.type, RopeConfig::Type::kDefault);
  ExpectConfigError("llama.rope.scaling.type", GgufString("spiral"),
                    "found \"spiral\", allowed: none, linear, yarn, longrope");
  ExpectErrorWith("qwen2", "rope.scaling.type", GgufString("longrope"),
                  "found \"longrope\", allowed: none, linear, yarn");
  ExpectConfigError("llama.rope.scaling.factor", GgufFloat32(-1), "found -1, allowed: a number");
  ExpectConfigError("llama.rope.freq_base", GgufFloat32(0), "found 0, allowed: a number from 1");
}

TEST(GgufConfig, ReadsYarn) {
  GgufBuilder builder = SmallGguf("qwen2");
  const auto set = [&](const char* key, const std::string& value) {
    builder.Set(absl::StrCat("qwen2.rope.scaling.", key), value);
  };
  set("type", GgufString("yarn"));
  set("factor", GgufFloat32(4));
  EXPECT_EQ(ConfigOf(builder)->rope.original_context, 512);  // the whole context
  EXPECT_EQ(ConfigOf(builder)->context_length, 2048);
  set("original_context_length", GgufUint32(128));
  const ModelConfig config = *ConfigOf(builder);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kYarn);
  EXPECT_EQ(config.rope.factor, 4);
  EXPECT_EQ(config.rope.original_context, 128);
  EXPECT_EQ(config.context_length, 512);
  const double derived = 0.1 * std::log(4) + 1;
  EXPECT_EQ(config.rope.magnitude, derived);
  set("attn_factor", GgufFloat32(0.5f));
  EXPECT_EQ(ConfigOf(builder)->rope.magnitude, 0.5 * derived);
  set("yarn_attn_factor", GgufFloat32(static_cast<float>(derived)));  // as derived
  set("yarn_beta_fast", GgufFloat32(32));
  EXPECT_TRUE(ConfigOf(builder).ok()) << ConfigOf(builder).status();
  const auto expect_wrong = [&](const char* key, const std::string& value, const char* says) {
    const GgufBuilder before = builder;
    set(key, value);
    ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                      absl::StrCat("key \"qwen2.rope.scaling.", key, "\": ", says));
    builder = before;
  };
  expect_wrong("yarn_attn_factor", GgufFloat32(2), "found 2, allowed: 1, or 1.13863 as derived");
  expect_wrong("yarn_beta_fast", GgufFloat32(16), "found 16, allowed: 32 (not implemented");
  expect_wrong("factor", GgufFloat32(0.5f), "found 0.5, allowed: at least 1 with yarn");
  set("yarn_attn_factor", "");
  set("original_context_length", GgufUint32(1 << 20));
  expect_wrong("factor", GgufFloat32(1e6f), "found 1e+06, allowed: at most ");
}

TEST(GgufConfig, ReadsLongRope) {
  for (const char* const architecture : {"llama", "granite", "phi3"}) {
    GgufBuilder builder = SmallGguf(architecture);
    const auto set = [&](const char* key, const std::string& value) {
      builder.Set(absl::StrCat(architecture, ".rope.scaling.", key), value);
    };
    // Llama and granite need the type; phi3 is recognised by its tensors.
    if (std::string(architecture) != "phi3") set("type", GgufString("longrope"));
    set("original_context_length", GgufUint32(64));
    set("attn_factor", GgufFloat32(1.25f));
    const std::vector<float> longer = {1, 2, 3, 4, 5, 6, 7, 8};
    builder.AddFloats("rope_factors_long.weight", {8}, longer);
    ExpectConfigError(builder, absl::StatusCode::kNotFound,
                      "tensor \"rope_factors_short.weight\": not found");
    builder.AddFloats("rope_factors_short.weight", {8}, std::vector<float>(8, 1.5f));
    ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
    EXPECT_EQ(config.rope.type, RopeConfig::Type::kLongRope);
    EXPECT_EQ(config.rope.original_context, 64);
    EXPECT_EQ(config.rope.magnitude, 1.25);
    EXPECT_EQ(config.rope.long_divisors, longer);
    EXPECT_THAT(config.rope.short_divisors, Each(1.5f));
    set("factor", GgufFloat32(2));
    EXPECT_FALSE(ConfigOf(builder).ok());  // a second scaling
  }
  for (const char* const name : {"rope_factors_long.weight", "rope_freqs.weight"}) {
    GgufBuilder builder = SmallGguf("qwen3");
    builder.AddFloats(name, {8}, std::vector<float>(8, 1.0f));
    ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                      absl::StrCat("tensor \"", name,
                                   "\": found a tensor, allowed: no such tensor in this qwen3"));
  }
}

TEST(GgufConfig, DividesAnglesByTheStoredDivisors) {
  GgufBuilder builder = SmallGguf();
  const std::vector<float> divisors = {1, 2, 4, 8, 1, 1, 1, 32};
  builder.AddFloats("rope_freqs.weight", {8}, divisors);
  ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
  const std::vector<float> plain = RopeConfig().InverseFrequencies(16);
  const std::vector<float> divided = config.rope.InverseFrequencies(16);
  ASSERT_THAT(divided, SizeIs(8));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(divided[i], plain[i] / divisors[i]);
  const auto refused_with = [](const GgufBuilder::Tensor& divisors, const std::string& says) {
    GgufBuilder builder = SmallGguf();
    builder.tensors.push_back(divisors);
    ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                      absl::StrCat("tensor \"rope_freqs.weight\": ", says));
  };
  const std::string zeros(32, '\0');
  refused_with({"rope_freqs.weight", {8}, 0, zeros}, "found 0, allowed: finite numbers above 0");
  refused_with({"rope_freqs.weight", {4}, 0, zeros}, "found shape [4], allowed: [8]");
  refused_with({"rope_freqs.weight", {8, 1}, 0, zeros}, "found shape [1, 8], allowed: [8]");
  refused_with({"rope_freqs.weight", {8}, 1, zeros}, "found float16, allowed: float32");
}

// Reference: Hugging Face transformers' rule for llama3 (RopeConfig::Type::kLlama3). The converter
// of llama.cpp stores the divisor of each angle in its place.
TEST(GgufConfig, StoredDivisorsMatchTheLlama3Rule) {
  RopeConfig rule{.type = RopeConfig::Type::kLlama3,
                  .theta = 500000,
                  .factor = 8,
                  .low_freq_factor = 1,
                  .high_freq_factor = 4,
                  .original_context = 8192};
  RopeConfig stored{.theta = 500000};
  const std::vector<float> plain = stored.InverseFrequencies(128);
  for (const float frequency : plain) {
    const double wavelength = 2 * M_PI / frequency;
    const double smooth = (8192 / wavelength - 1) / (4 - 1);
    stored.divisors.push_back(wavelength < 8192 / 4.0   ? 1
                              : wavelength > 8192 / 1.0 ? 8
                                                        : 1 / ((1 - smooth) / 8 + smooth));
  }
  const std::vector<float> wanted = rule.InverseFrequencies(128);
  const std::vector<float> found = stored.InverseFrequencies(128);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(found[i], wanted[i], 4e-7 * wanted[i]) << i;
}

TEST(GgufConfig, RefusesKeysThatWouldChangeTheResult) {
  ExpectConfigError("llama.logit_scale", GgufFloat32(0.5f),
                    "found 0.5, allowed: 1 (not implemented");
  ExpectConfigError("llama.rope.scaling.yarn_log_multiplier", GgufFloat32(1),
                    "found 1, allowed: 0");
  ExpectConfigError("llama.attention.causal", GgufBool(false), "found false, allowed: true");
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.expert_count", GgufUint32(0));
  builder.Set("llama.logit_scale", GgufFloat32(1));
  builder.Set("llama.attention.causal", GgufBool(true));
  builder.Set("llama.attention.sliding_window", GgufUint32(4));  // ignored by the reference
  ASSERT_OK_AND_ASSIGN(const auto config, ConfigOf(builder));
  EXPECT_THAT(config.windows, Each(0));
}

TEST(GgufConfig, ReadsEachEndIdOnce) {
  GgufBuilder builder = SmallGguf();
  builder.Set("tokenizer.ggml.eos_token_id", GgufUint32(7));
  builder.Set("tokenizer.ggml.eot_token_id", GgufUint32(9));
  builder.Set("tokenizer.ggml.eom_token_id", GgufUint32(7));
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 9));
  for (const char* const key : {"eos", "eot", "eom"}) {
    ExpectConfigError(absl::StrCat("tokenizer.ggml.", key, "_token_id"), GgufUint32(10),
                      "found 10, allowed: an integer from 0 to 9");
  }
}

TEST(GgufConfig, FindsEndsByTheirNames) {
  GgufBuilder builder = SmallGguf();
  builder.Set("tokenizer.ggml.eos_token_id", GgufUint32(7));
  builder.Set("tokenizer.ggml.tokens",
              GgufStrings({"a", "<|im_start|>", "<|im_end|>", "b", "<|endoftext|>", "<|fim_pad|>",
                           "d", "e", "<|eot_id|>", "f",
                           "<end_of_turn>"}));  // the last is beyond the model's vocabulary
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 8, 2, 4, 5));
  builder.Set("tokenizer.ggml.eot_token_id", GgufUint32(9));
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 9, 8, 2, 4, 5));
  // A token that a key states replaces the tokens with the usual names for its role.
  builder.Set("tokenizer.ggml.fim_pad_token_id", GgufUint32(6));
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 9, 6, 8, 2, 4));
  ExpectConfigError("tokenizer.ggml.fim_rep_token_id", GgufUint32(10),
                    "found 10, allowed: an integer from 0 to 9");
}

}  // namespace
}  // namespace tandem
