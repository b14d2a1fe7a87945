#include "model/checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

// A small model of a family, as transformers 4 writes it.
Json Config(const std::string& model_type = "llama") {
  const std::string architecture = model_type == "llama"     ? "LlamaForCausalLM"
                                   : model_type == "mistral" ? "MistralForCausalLM"
                                   : model_type == "qwen2"   ? "Qwen2ForCausalLM"
                                                             : "Qwen3ForCausalLM";
  return {{"model_type", model_type},
          {"architectures", {architecture}},
          {"vocab_size", 100},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 256},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"}};
}
Json With(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  return config;
}
Json Without(Json config, const std::string& key) {
  config.erase(key);
  return config;
}

absl::StatusOr<ModelConfig> ParseText(const std::string& text,
                                      std::optional<std::string> generation = std::nullopt) {
  std::optional<absl::string_view> generation_view;
  if (generation.has_value()) generation_view = *generation;
  return ParseModelConfig(text, "config.json", generation_view, "generation_config.json");
}
absl::StatusOr<ModelConfig> ParseConfig(const Json& config) { return ParseText(config.dump()); }

ModelConfig Accepted(const Json& config) {
  const auto model = ParseConfig(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelConfig();
}

void ExpectError(const absl::Status& status, const std::string& says) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
  EXPECT_TRUE(absl::StrContains(status.message(), says)) << status << "\nwanted: " << says;
  EXPECT_TRUE(absl::StrContains(status.message(), "config.json: ")) << status;
  EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
  EXPECT_LT(status.message().size(), 500u) << status;
}
// Expects an error that names this file, the key and the value found.
void ExpectRefused(const Json& config, const std::string& key) {
  ExpectError(ParseConfig(config).status(), absl::StrCat("config.json: ", key, ": found "));
}

// The keys of parallel drafts (docs/drafting/parallel_drafts.md).
TEST(ModelConfig, ReadsTheMaskOfAParallelDraft) {
  EXPECT_EQ(Accepted(Config()).mask_token, kNoMaskToken);
  EXPECT_EQ(Accepted(With(Config(), "pard_token", 99)).mask_token, 99);
  EXPECT_EQ(Accepted(With(With(Config(), "pard_token", 0), "spd_type", "pard")).mask_token, 0);
  EXPECT_EQ(Accepted(With(Config(), "pard_token", nullptr)).mask_token, kNoMaskToken);
  ExpectRefused(With(Config(), "pard_token", 100), "pard_token");
  ExpectRefused(With(Config(), "pard_token", -1), "pard_token");
  ExpectRefused(With(Config(), "pard_token", "mask"), "pard_token");
  for (const char* const type : {"pard2", "eagle"}) {
    ExpectRefused(With(With(Config(), "pard_token", 9), "spd_type", type), "spd_type");
  }
  ExpectError(ParseConfig(With(Config(), "spd_type", "pard")).status(), "pard_token");
}

// ---- The golden models ----

struct Expected {
  const char* name;
  const char* family;
  int vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, intermediate_size;
  int context_length;
  bool tied, qkv_bias, head_norms;
  int window;
  double theta;
};

TEST(ModelConfig, ReadsEveryGoldenModel) {
  // The table in tests/data/README.md.
  const Expected models[] = {
      {"llama-gqa", "llama", 509, 32, 2, 4, 2, 8, 88, 256, false, false, false, 0, 1e4},
      {"llama-tied", "llama", 331, 40, 2, 4, 2, 10, 72, 256, true, false, false, 0, 1e4},
      {"llama-rope3", "llama", 289, 32, 2, 2, 1, 16, 88, 512, false, false, false, 0, 5e5},
      {"llama-mqa", "llama", 300, 48, 1, 3, 1, 24, 88, 256, false, false, false, 0, 1e4},
      {"llama-mha", "llama", 293, 24, 4, 3, 3, 8, 56, 256, false, false, false, 0, 1e4},
      {"mistral-full", "mistral", 320, 32, 2, 4, 2, 8, 112, 256, false, false, false, 0, 1e4},
      {"mistral-window", "mistral", 307, 32, 2, 4, 4, 8, 72, 256, false, false, false, 11, 1e4},
      {"qwen2-bias", "qwen2", 401, 32, 2, 4, 2, 8, 88, 256, true, true, false, 0, 1e6},
      {"qwen3-norm", "qwen3", 288, 32, 3, 4, 2, 16, 72, 256, true, false, true, 0, 1e6},
      {"qwen3-shallow", "qwen3", 288, 32, 1, 4, 2, 16, 72, 256, true, false, true, 0, 1e6},
      {"llama-bf16", "llama", 512, 32, 2, 8, 2, 4, 136, 256, false, false, false, 0, 1e4},
      {"qwen2-fp16", "qwen2", 320, 48, 2, 6, 2, 8, 104, 256, false, true, false, 0, 1e6},
      {"llama-sharded", "llama", 320, 32, 2, 4, 1, 8, 88, 256, false, false, false, 0, 1e4},
      {"mistral-noisy", "mistral", 320, 32, 2, 4, 2, 8, 112, 256, false, false, false, 0, 1e4}};
  for (const Expected& expected : models) {
    SCOPED_TRACE(expected.name);
    ASSERT_OK_AND_ASSIGN(const auto model, ReadModelConfig(GoldenModelPath(expected.name)));
    EXPECT_EQ(model.family, expected.family);
    EXPECT_EQ(model.vocab_size, expected.vocab_size);
    EXPECT_EQ(model.hidden_size, expected.hidden_size);
    EXPECT_EQ(model.intermediate_size, expected.intermediate_size);
    EXPECT_EQ(model.num_layers, expected.num_layers);
    EXPECT_EQ(model.num_heads, expected.num_heads);
    EXPECT_EQ(model.num_kv_heads, expected.num_kv_heads);
    EXPECT_EQ(model.head_dim, expected.head_dim);
    EXPECT_EQ(model.context_length, expected.context_length);
    EXPECT_EQ(model.tied_embeddings, expected.tied);
    EXPECT_EQ(model.qkv_bias, expected.qkv_bias);
    EXPECT_FALSE(model.output_bias);
    EXPECT_FALSE(model.mlp_bias);
    EXPECT_EQ(model.query_key_norm == QueryKeyNorm::kEachHead, expected.head_norms);
    EXPECT_EQ(model.windows, std::vector<int>(expected.num_layers, expected.window));
    EXPECT_EQ(model.rope.theta, expected.theta);
  }
}

TEST(ModelConfig, ReadsTheGoldenRopeScaling) {
  ASSERT_OK_AND_ASSIGN(const auto model, ReadModelConfig(GoldenModelPath("llama-rope3")));
  EXPECT_EQ(model.rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(model.rope.factor, 8);
  EXPECT_EQ(model.rope.low_freq_factor, 1);
  EXPECT_EQ(model.rope.high_freq_factor, 4);
  EXPECT_EQ(model.rope.original_context, 64);
  EXPECT_EQ(model.eos_token_ids, (std::vector<TokenId>{281, 282}));
}

// ---- Forms ----

TEST(ModelConfig, UsesDefaultsForKeysThatOlderFilesOmit) {
  Json config = Config();
  for (const char* const key : {"num_key_value_heads", "rms_norm_eps", "hidden_act"}) {
    config.erase(key);
  }
  const ModelConfig model = Accepted(config);
  EXPECT_EQ(model.num_kv_heads, 4);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.rope.theta, 10000);
  EXPECT_EQ(model.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(model.rms_norm_epsilon, 1e-6f);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_TRUE(model.eos_token_ids.empty());
  for (const char* const key : {"head_dim", "num_key_value_heads", "rope_scaling", "rope_theta",
                                "sliding_window", "tie_word_embeddings", "eos_token_id"}) {
    config[key] = nullptr;
  }
  EXPECT_EQ(Accepted(config).num_kv_heads, 4);
  EXPECT_EQ(Accepted(config).head_dim, 16);
}

// The defaults of the reference's configuration classes.
TEST(ModelConfig, UsesTheDefaultsOfTheFamily) {
  for (const char* const family : {"mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    Json config = With(Config(family), "num_attention_heads", 32);
    config.erase("num_key_value_heads");
    config["head_dim"] = 8;
    EXPECT_EQ(Accepted(config).num_kv_heads, family == std::string("mistral") ? 8 : 32);
    EXPECT_EQ(Accepted(With(config, "num_key_value_heads", nullptr)).num_kv_heads, 32);
  }
  EXPECT_EQ(Accepted(Config("qwen3")).head_dim, 128);
  EXPECT_EQ(Accepted(Config("qwen2")).head_dim, 16);
  EXPECT_EQ(Accepted(With(Config("qwen2"), "model_type", nullptr)).family, "qwen2");
  EXPECT_EQ(Accepted(Without(Config("qwen2"), "architectures")).family, "qwen2");
}

TEST(ModelConfig, ReadsTheNewestForm) {
  Json config = Config("qwen3");
  config["dtype"] = "bfloat16";
  config["head_dim"] = 32;
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  config["layer_types"] =
      Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  const ModelConfig model = Accepted(config);
  EXPECT_EQ(model.rope.theta, 1e6);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.windows, std::vector<int>(4, 0));
}

TEST(ModelConfig, ReadsRopeScalingOfEitherForm) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  for (const char* const key : {"rope_scaling", "rope_parameters"}) {
    SCOPED_TRACE(key);
    const auto type_of = [&](const Json& scaling) {
      return Accepted(With(Config(), key, scaling)).rope.type;
    };
    EXPECT_EQ(type_of(Json::object()), RopeConfig::Type::kDefault);
    EXPECT_EQ(type_of({{"rope_type", "default"}}), RopeConfig::Type::kDefault);
    EXPECT_EQ(type_of({{"type", "linear"}, {"factor", 2}}), RopeConfig::Type::kLinear);
    EXPECT_EQ(type_of({{"type", "linear"}, {"rope_type", "linear"}, {"factor", 2.5}}),
              RopeConfig::Type::kLinear);
    EXPECT_EQ(type_of(llama3), RopeConfig::Type::kLlama3);
    // Dynamic scaling changes nothing within max_position_embeddings.
    EXPECT_EQ(type_of({{"type", "dynamic"}, {"factor", 4.0}}), RopeConfig::Type::kDefault);

    const auto refused = [&](const Json& scaling, const std::string& name) {
      ExpectRefused(With(Config(), key, scaling), absl::StrCat(key, ".", name));
    };
    refused({{"rope_type", "foo"}, {"factor", 2.0}}, "rope_type");
    refused({{"rope_type", 3}}, "rope_type");
    refused({{"factor", 2.0}}, "rope_type");
    refused({{"type", "linear"}, {"rope_type", "llama3"}, {"factor", 2.0}}, "type");
    refused({{"type", "default"}, {"factor", 2.0}}, "factor");
    refused({{"type", "default"}, {"mrope_section", {1, 2}}}, "mrope_section");
    refused({{"type", "linear"}}, "factor");
    refused({{"type", "linear"}, {"factor", "2"}}, "factor");
    refused({{"type", "linear"}, {"factor", 0.5}}, "factor");
    refused({{"type", "linear"}, {"factor", -2}}, "factor");
    refused({{"type", "linear"}, {"factor", 2}, {"attention_factor", 0.5}}, "attention_factor");
    refused({{"type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 0.5}},
            "partial_rotary_factor");
    refused({{"type", "dynamic"}, {"factor", 2}, {"original_max_position_embeddings", 64}},
            "original_max_position_embeddings");
    for (const auto& [name, value] : llama3.items()) {
      if (name == "rope_type") continue;
      refused(Without(llama3, name), name);
      refused(With(llama3, name, "x"), name);
      refused(With(llama3, name, 0), name);
    }
    refused(With(llama3, "high_freq_factor", 1.0), "high_freq_factor");
    ExpectRefused(With(Config(), key, "linear"), key);
    ExpectRefused(With(Config(), key, Json::array()), key);
  }
}

TEST(ModelConfig, RefusesContradictoryThetas) {
  Json config = With(Config(), "rope_parameters", {{"rope_theta", 5e5}});
  EXPECT_EQ(Accepted(config).rope.theta, 5e5);
  EXPECT_EQ(Accepted(With(config, "rope_theta", 5e5)).rope.theta, 5e5);
  ExpectRefused(With(config, "rope_theta", 1e4), "rope_parameters.rope_theta");
  ExpectRefused(With(config, "rope_scaling", {{"type", "linear"}, {"factor", 2}}), "rope_scaling");
  ExpectRefused(With(Config(), "rope_theta", 0), "rope_theta");
  ExpectRefused(With(Config(), "rope_theta", "10000"), "rope_theta");
}

// ---- Windows ----

TEST(ModelConfig, MistralSlidesInEveryLayer) {
  EXPECT_EQ(Accepted(With(Config("mistral"), "sliding_window", 11)).windows,
            std::vector<int>(4, 11));
  EXPECT_EQ(Accepted(With(Config("mistral"), "sliding_window", nullptr)).windows,
            std::vector<int>(4, 0));
  EXPECT_EQ(Accepted(Config("mistral")).windows, std::vector<int>(4, 4096));
  ExpectRefused(With(Config("mistral"), "sliding_window", 0), "sliding_window");
  ExpectRefused(With(Config("mistral"), "sliding_window", "11"), "sliding_window");
  ExpectRefused(With(Config("mistral"), "use_sliding_window", false), "use_sliding_window");
}

TEST(ModelConfig, LlamaDoesNotSlide) {
  ExpectRefused(With(Config(), "sliding_window", 11), "sliding_window");
  ExpectRefused(With(Config(), "use_sliding_window", true), "use_sliding_window");
  EXPECT_EQ(
      Accepted(With(With(Config(), "sliding_window", 11), "use_sliding_window", false)).windows,
      std::vector<int>(4, 0));
}

TEST(ModelConfig, QwenSlidesInUpperLayersOrByLayerTypes) {
  for (const char* const family : {"qwen2", "qwen3"}) {
    Json config = With(With(Config(family), "sliding_window", 7), "max_window_layers", 1);
    const Json types = {"sliding_attention", "full_attention", "full_attention",
                        "sliding_attention"};
    EXPECT_EQ(Accepted(config).windows, std::vector<int>(4, 0));
    EXPECT_EQ(Accepted(With(config, "use_sliding_window", false)).windows, std::vector<int>(4, 0));
    ExpectRefused(With(config, "layer_types", types), "layer_types");
    config["use_sliding_window"] = true;
    EXPECT_EQ(Accepted(config).windows, (std::vector<int>{0, 7, 7, 7}));
    EXPECT_EQ(Accepted(With(config, "max_window_layers", 100)).windows, std::vector<int>(4, 0));
    EXPECT_EQ(Accepted(Without(config, "max_window_layers")).windows, std::vector<int>(4, 0));
    EXPECT_EQ(Accepted(With(config, "layer_types", types)).windows, (std::vector<int>{7, 0, 0, 7}));
    EXPECT_EQ(Accepted(With(config, "sliding_window", nullptr)).windows, std::vector<int>(4, 0));
    ExpectRefused(With(config, "max_window_layers", -1), "max_window_layers");
    ExpectRefused(With(config, "use_sliding_window", 1), "use_sliding_window");
  }
}

TEST(ModelConfig, RefusesLayerTypesThatItCannotCompute) {
  Json config = Config();
  const Json full = "full_attention", slides = "sliding_attention";
  EXPECT_TRUE(ParseConfig(With(config, "layer_types", {full, full, full, full})).ok());
  ExpectRefused(With(config, "layer_types", {full, full, full}), "layer_types");
  ExpectRefused(With(config, "layer_types", {full, full, full, slides}), "layer_types");
  ExpectRefused(With(config, "layer_types", {full, full, full, "linear_attention"}), "layer_types");
  ExpectRefused(With(config, "layer_types", {full, full, full, 1}), "layer_types");
  ExpectRefused(With(config, "layer_types", "full_attention"), "layer_types");
  config = With(Config("mistral"), "sliding_window", 5);
  EXPECT_TRUE(ParseConfig(With(config, "layer_types", {slides, slides, slides, slides})).ok());
  ExpectRefused(With(config, "layer_types", {full, slides, full, slides}), "layer_types");
}

// ---- Biases ----

TEST(ModelConfig, BiasesFollowTheFamily) {
  const ModelConfig llama =
      Accepted(With(With(Config(), "attention_bias", true), "mlp_bias", true));
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  const ModelConfig qwen2 = Accepted(Config("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.mlp_bias &&
              qwen2.query_key_norm == QueryKeyNorm::kNone);
  const ModelConfig qwen3 = Accepted(With(Config("qwen3"), "attention_bias", true));
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias &&
              qwen3.query_key_norm == QueryKeyNorm::kEachHead);
  ExpectRefused(With(Config("qwen2"), "attention_bias", false), "attention_bias");
  ExpectRefused(With(Config("mistral"), "attention_bias", true), "attention_bias");
  ExpectRefused(With(Config("mistral"), "mlp_bias", true), "mlp_bias");
  ExpectRefused(With(Config("qwen3"), "mlp_bias", true), "mlp_bias");
  ExpectRefused(With(Config(), "attention_bias", "yes"), "attention_bias");
}

// ---- Ends of text ----

TEST(ModelConfig, EosIdsComeFromTheGenerationConfigFirst) {
  const std::string config = With(Config(), "eos_token_id", 2).dump();
  const auto ids = [&](std::optional<std::string> generation) {
    const auto model = ParseText(config, generation);
    EXPECT_TRUE(model.ok()) << model.status();
    return model->eos_token_ids;
  };
  EXPECT_EQ(ids(std::nullopt), std::vector<TokenId>{2});
  EXPECT_EQ(ids("{}"), std::vector<TokenId>{2});
  EXPECT_EQ(ids(R"({"eos_token_id":null})"), std::vector<TokenId>{2});
  EXPECT_EQ(ids(R"({"eos_token_id":5})"), std::vector<TokenId>{5});
  EXPECT_EQ(ids(R"({"eos_token_id":[7,5,7]})"), (std::vector<TokenId>{7, 5}));
  for (const char* const wrong :
       {"100", "-1", "1.5", "true", "\"2\"", "[[2]]", "[null]", "18446744073709551615", "{}"}) {
    const auto model = ParseText(config, absl::StrCat(R"({"eos_token_id":)", wrong, "}"));
    ExpectError(model.status(), "generation_config.json: eos_token_id: found ");
    ExpectRefused(With(Config(), "eos_token_id", Json::parse(wrong)), "eos_token_id");
  }
  ExpectError(ParseText(config, "[]").status(), "generation_config.json: found []");
  ExpectError(ParseText(config, "").status(), "generation_config.json: not JSON");
}

// ---- Refusals ----

TEST(ModelConfig, RefusesWrongSizes) {
  for (const char* const key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "head_dim"}) {
    SCOPED_TRACE(key);
    for (const Json& value :
         {Json("32"), Json(0), Json(-32), Json(1ll << 40), Json(32.0), Json(true), Json({32}),
          Json(Json::object()), Json(18446744073709551615ull), Json(1e300)}) {
      ExpectRefused(With(Config(), key, value), key);
    }
  }
  for (const char* const key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "max_position_embeddings"}) {
    ExpectError(ParseConfig(Without(Config(), key)).status(), absl::StrCat(key, ": found nothing"));
  }
  ExpectRefused(With(Config(), "num_key_value_heads", 3), "num_key_value_heads");
  ExpectRefused(With(Config(), "num_key_value_heads", 8), "num_key_value_heads");
  ExpectRefused(With(Config(), "head_dim", 15), "head_dim");
  ExpectRefused(With(Config(), "hidden_size", 66), "head_dim");
  ExpectRefused(With(Config(), "hidden_size", 60), "head_dim");  // 15 for each head
  for (const Json& value : {Json("small"), Json(0), Json(-1e-5), Json(2.0), Json({1e-5})}) {
    ExpectRefused(With(Config(), "rms_norm_eps", value), "rms_norm_eps");
  }
}

TEST(ModelConfig, RefusesOtherModels) {
  ExpectRefused(With(Config(), "model_type", "foo"), "model_type");
  ExpectRefused(With(Config(), "model_type", 3), "model_type");
  ExpectRefused(With(Config(), "architectures", {"FooForCausalLM"}), "architectures");
  ExpectRefused(With(Config(), "architectures", {"MistralForCausalLM"}), "architectures");
  ExpectRefused(With(Config(), "architectures", {"LlamaForCausalLM", "Qwen2ForCausalLM"}),
                "architectures");
  ExpectRefused(With(Config(), "architectures", "LlamaForCausalLM"), "architectures");
  ExpectRefused(With(Config(), "architectures", {1}), "architectures");
  ExpectRefused(Without(Without(Config(), "architectures"), "model_type"), "model_type");
  ExpectRefused(Json::object(), "model_type");
  ExpectRefused(With(Config(), "hidden_act", "foo"), "hidden_act");
  ExpectRefused(With(Config(), "hidden_act", "gelu"), "hidden_act");
}

TEST(ModelConfig, RefusesKeysThatWouldChangeTheResult) {
  const std::pair<const char*, Json> keys[] = {{"quantization_config", "gptq"},
                                               {"pretraining_tp", 2},
                                               {"partial_rotary_factor", 0.5},
                                               {"attn_logit_softcapping", 50.0},
                                               {"final_logit_softcapping", 30.0},
                                               {"logit_scale", 0.0625},
                                               {"logits_scaling", 8.0},
                                               {"embedding_multiplier", 12.0},
                                               {"residual_multiplier", 0.22},
                                               {"attention_multiplier", 0.0078125},
                                               {"num_local_experts", 8},
                                               {"num_experts", 64},
                                               {"alibi", true},
                                               {"mup", "yes"},
                                               {"some_future_key", 0}};
  for (const auto& [key, value] : keys) ExpectRefused(With(Config(), key, value), key);
}

TEST(ModelConfig, AcceptsKeysThatDoNotChangeTheResult) {
  Json config = Config();
  config.update({{"pretraining_tp", 1},
                 {"partial_rotary_factor", 1.0},
                 {"logit_scale", 1},
                 {"some_future_key", nullptr},
                 {"another", false},
                 {"a_third", Json::array()},
                 {"a_fourth", ""},
                 {"quantization_config", nullptr},
                 {"_name_or_path", "x"},
                 {"torch_dtype", "bfloat16"},
                 {"use_cache", true},
                 {"id2label", {{"0", "LABEL_0"}}},
                 {"bos_token_id", 1},
                 {"pad_token_id", -1},
                 {"attention_dropout", 0.1}});
  EXPECT_TRUE(ParseConfig(config).ok()) << ParseConfig(config).status();
}

TEST(ModelConfig, SaysWhichKeysItIgnoresAndWhy) {
  Json config = Config();
  config.update({{"use_cache", true}, {"some_future_key", nullptr}, {"pretraining_tp", 1}});
  const ModelConfig model = Accepted(config);
  ASSERT_EQ(model.ignored_keys.size(), 2u);
  EXPECT_EQ(model.ignored_keys[0].key, "some_future_key");
  EXPECT_STREQ(model.ignored_keys[0].why, "empty");
  EXPECT_EQ(model.ignored_keys[1].key, "use_cache");
  EXPECT_STREQ(model.ignored_keys[1].why, "affects how another program computes, not the result");
}

TEST(ModelConfig, IgnoresUnknownKeysThatAreAllowed) {
  const auto parse = [](const Json& config, const std::vector<std::string>& allowed) {
    return ParseModelConfig(config.dump(), "config.json", std::nullopt, "", allowed);
  };
  Json config = Config();
  config.update({{"one", 1}, {"another", 2}});
  ExpectError(parse(config, {}).status(), "another: found 2, allowed: nothing, null or false");
  ExpectError(parse(config, {"one"}).status(), "another: found 2");
  ExpectError(parse(config, {"on", "another"}).status(), "one: found 1");
  ASSERT_OK_AND_ASSIGN(const auto model, parse(config, {"one", "another"}));
  EXPECT_STREQ(model.ignored_keys[0].why, "not known, and allowed");
  // A known key that is not implemented stays an error.
  ExpectError(parse(With(Config(), "logits_scaling", 8.0), {"logits_scaling"}).status(),
              "logits_scaling: found 8.0");
  // In a model of several parts, `allowed` has the key as the error names it, or its last part.
  Json text = With(Config("mistral"), "one", 1);
  const Json whole = {{"model_type", "mistral3"}, {"text_config", text}};
  ExpectError(parse(whole, {}).status(), "text_config.one: found 1");
  EXPECT_TRUE(parse(whole, {"text_config.one"}).ok());
  EXPECT_TRUE(parse(whole, {"one"}).ok());
}

TEST(ModelConfig, RefusesTextThatIsNotAnObject) {
  ExpectError(ParseText("").status(), "config.json: not JSON");
  ExpectError(ParseText("{").status(), "config.json: not JSON");
  ExpectError(ParseText("[]").status(), "config.json: found [], allowed: an object");
  ExpectError(ParseText("null").status(), "config.json: found null");
  ExpectError(ParseText("{\"\xC3(\":1}").status(), "config.json: not JSON in UTF-8");
  ExpectError(ParseText(R"({"rms_norm_eps":NaN})").status(), "config.json: not JSON");
  ExpectError(ParseText(R"({"rms_norm_eps":Infinity})").status(), "config.json: not JSON");
  ExpectError(ParseText(R"({"rms_norm_eps":1e999})").status(), "config.json: not JSON");
  ExpectError(ParseText(std::string(100'000, '[')).status(), "config.json: values nested");
  ExpectError(
      ParseText(R"({"a":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}").status(),
      "config.json: values nested");
  ExpectError(ParseText(R"({"vocab_size":1,"vocab_size":2})").status(),
              R"(key "vocab_size" twice)");
}

TEST(ModelConfig, SaysWhichFileIsMissing) {
  const TestFolder folder;
  const absl::Status status = ReadModelConfig(folder.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StartsWith(status.message(), folder.Path("config.json"))) << status;
  folder.Write("config.json", Config().dump());
  EXPECT_TRUE(ReadModelConfig(folder.path()).ok());
  std::filesystem::create_directories(folder.Path("generation_config.json"));
  EXPECT_EQ(ReadModelConfig(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
