#include "model/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gguf_builder.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A model of two heads of 16 as far as its configuration is concerned.
GgufBuilder SmallGguf(const std::string& architecture = "llama") {
  GgufBuilder file;
  const auto set = [&](const std::string& key, const std::string& value) {
    file.Set(absl::StrCat(architecture, ".", key), value);
  };
  file.Set("general.architecture", GgufString(architecture));
  set("block_count", GgufUint32(3));
  set("embedding_length", GgufUint32(32));
  set("feed_forward_length", GgufUint32(64));
  set("context_length", GgufUint32(512));
  set("attention.head_count", GgufUint32(2));
  set("attention.head_count_kv", GgufUint32(1));
  set("attention.layer_norm_rms_epsilon", GgufFloat32(1e-5f));
  file.AddFloats("token_embd.weight", {32, 10}, std::vector<float>(320));
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

// With `value` for `key`, which is taken away if that is empty.
void ExpectConfigError(const std::string& key, const std::string& value, const std::string& says) {
  GgufBuilder builder = SmallGguf();
  builder.Set(key, value);
  ExpectConfigError(
      builder, value.empty() ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
      absl::StrCat("key \"", key, "\": ", says));
}

TEST(GgufConfig, ReadsTheGoldenModel) {
  const auto config = ReadModelConfig(GoldenGgufPath("llama-small.Q8_0.gguf"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->vocab_size, 500);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 4);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rms_norm_epsilon, 1e-5f);
  EXPECT_EQ(config->rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->qkv_bias || config->output_bias || config->mlp_bias ||
               config->query_key_norm != QueryKeyNorm::kNone);
  EXPECT_THAT(config->windows, ElementsAre(0, 0));
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
}

TEST(GgufConfig, FillsInWhatIsAbsentAsTheReferenceDoes) {
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.attention.head_count_kv", "");
  const auto config = ConfigOf(builder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_THAT(config->eos_token_ids, IsEmpty());
  EXPECT_EQ(config->vocab_size, 10);
}

TEST(GgufConfig, ReadsEveryArchitecture) {
  EXPECT_TRUE(HasNeighbourRows(*ConfigOf(SmallGguf("llama"))));
  EXPECT_EQ(ConfigOf(SmallGguf("llama"))->query_key_norm, QueryKeyNorm::kNone);
  EXPECT_FALSE(HasNeighbourRows(*ConfigOf(SmallGguf("qwen2"))));
  EXPECT_EQ(ConfigOf(SmallGguf("qwen2"))->query_key_norm, QueryKeyNorm::kNone);
  EXPECT_FALSE(HasNeighbourRows(*ConfigOf(SmallGguf("qwen3"))));
  EXPECT_EQ(ConfigOf(SmallGguf("qwen3"))->query_key_norm, QueryKeyNorm::kEachHead);
  EXPECT_EQ(ConfigOf(SmallGguf("qwen3"))->family, "qwen3");
  ExpectConfigError("general.architecture", GgufString("gpt99"),
                    "found \"gpt99\", allowed: llama, qwen2, qwen3");
  ExpectConfigError("general.architecture", GgufUint32(1), "found 1, allowed: a string");
  ExpectConfigError("general.architecture", "", "found nothing, allowed: a string");
  ExpectConfigError(GgufBuilder(), absl::StatusCode::kNotFound, "key \"general.architecture\"");
}

TEST(GgufConfig, SeesTensorsThatAreThereOrNot) {
  GgufBuilder builder = SmallGguf();
  builder.AddFloats("output.weight", {32, 10}, std::vector<float>(320));
  builder.AddFloats("blk.0.attn_q.bias", {32}, std::vector<float>(32));
  builder.AddFloats("blk.0.attn_output.bias", {32}, std::vector<float>(32));
  builder.AddFloats("blk.0.ffn_gate.bias", {64}, std::vector<float>(64));
  const auto config = ConfigOf(builder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_TRUE(config->qkv_bias);
  EXPECT_TRUE(config->output_bias);
  EXPECT_TRUE(config->mlp_bias);

  builder.Find("token_embd.weight").name = "other";
  ExpectConfigError(builder, absl::StatusCode::kNotFound,
                    "tensor \"token_embd.weight\": not found");
  builder.Find("other") = {"token_embd.weight", {32}, 0, std::string(128, '\0')};
  ExpectConfigError(builder, absl::StatusCode::kInvalidArgument,
                    "tensor \"token_embd.weight\": shape: found [32], allowed: [at most ");
}

TEST(GgufConfig, RefusesSizesThatAreAbsentWrongOrAbsurd) {
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
                    "found 3, allowed: a divisor of the 2 of llama.attention.head_count");
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.attention.head_count", GgufUint32(5));
  ExpectConfigError(
      builder, absl::StatusCode::kInvalidArgument,
      "key \"llama.attention.key_length\": found nothing, allowed: an even integer, as");
  ExpectConfigError("llama.attention.key_length", GgufUint32(15), "found 15, allowed: an even");
  ExpectConfigError("llama.attention.value_length", GgufUint32(8),
                    "found 8, allowed: 16, the length of a key");
  ExpectConfigError("llama.rope.dimension_count", GgufUint32(8),
                    "found 8, allowed: 16, the whole of a head");
  builder.Set("llama.attention.key_length", GgufUint32(24));
  builder.Set("llama.attention.value_length", GgufUint32(24));
  builder.Set("llama.rope.dimension_count", GgufUint32(24));
  const auto config = ConfigOf(builder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 24);  // heads together are larger than hidden
}

TEST(GgufConfig, ReadsHowPositionsTurn) {
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.rope.freq_base", GgufFloat32(5e5f));
  builder.Set("llama.rope.scaling.factor", GgufFloat32(4));  // linear, as the reference takes it
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
  ExpectConfigError("llama.rope.scaling.type", GgufString("yarn"),
                    "found \"yarn\", allowed: none, linear");
  ExpectConfigError("llama.rope.scaling.factor", GgufFloat32(-1), "found -1, allowed: a number");
  ExpectConfigError("llama.rope.freq_base", GgufFloat32(0), "found 0, allowed: a number from 1");
}

TEST(GgufConfig, DividesTheAnglesByWhatTheFileSays) {
  GgufBuilder builder = SmallGguf();
  const std::vector<float> divisors = {1, 2, 4, 8, 1, 1, 1, 32};
  builder.AddFloats("rope_freqs.weight", {8}, divisors);
  const auto config = ConfigOf(builder);
  ASSERT_TRUE(config.ok()) << config.status();
  const std::vector<float> plain = RopeConfig().InverseFrequencies(16);
  const std::vector<float> divided = config->rope.InverseFrequencies(16);
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

// Reference: Hugging Face transformers' rule for llama3 (RopeConfig::Type::kLlama3), of which the
// converter of llama.cpp stores what it divides each angle by.
TEST(GgufConfig, DivisorsOfLlama3AreItsRule) {
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

TEST(GgufConfig, RefusesWhatWouldChangeTheResult) {
  ExpectConfigError("llama.expert_count", GgufUint32(8), "found 8, allowed: 0 (not implemented");
  ExpectConfigError("llama.logit_scale", GgufFloat32(0.5f),
                    "found 0.5, allowed: 1 (not implemented");
  ExpectConfigError("llama.rope.scaling.attn_factor", GgufFloat32(2), "found 2, allowed: 1");
  ExpectConfigError("llama.attention.causal", GgufBool(false), "found false, allowed: true");
  GgufBuilder builder = SmallGguf();
  builder.Set("llama.expert_count", GgufUint32(0));
  builder.Set("llama.logit_scale", GgufFloat32(1));
  builder.Set("llama.attention.causal", GgufBool(true));
  builder.Set("llama.attention.sliding_window", GgufUint32(4));  // the reference has none here
  const auto config = ConfigOf(builder);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->windows, Each(0));
}

TEST(GgufConfig, ReadsTheIdsThatEndATextOnceEach) {
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

TEST(GgufConfig, KnowsTheEndOfATurnByItsTextWhereNoKeyNamesIt) {
  GgufBuilder builder = SmallGguf();
  builder.Set("tokenizer.ggml.eos_token_id", GgufUint32(7));
  builder.Set("tokenizer.ggml.tokens",
              GgufStrings({"a", "<|im_start|>", "<|im_end|>", "b", "<|endoftext|>", "c", "d", "e",
                           "<|eot_id|>", "f", "<end_of_turn>"}));  // the last is behind the model's
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 2, 8));
  builder.Set("tokenizer.ggml.eot_token_id", GgufUint32(9));
  EXPECT_THAT(ConfigOf(builder)->eos_token_ids, ElementsAre(7, 9));
}

}  // namespace
}  // namespace tandem
