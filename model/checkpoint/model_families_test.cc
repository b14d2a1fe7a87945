// The parts of each family's configuration beyond those of the Llama line (model_config_test.cc).
// tests/golden_models_test.cc compares the computation with the reference's logits.
#include "model/checkpoint/model_families.h"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "gtest/gtest.h"
#include "model/checkpoint/model_config.h"
#include "tandem/json_value.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using FamilyJson = SortedJson;

FamilyJson GoldenConfig(const std::string& name) {
  const auto text = ReadFile(GoldenModelPath(absl::StrCat(name, "/config.json")));
  EXPECT_TRUE(text.ok()) << text.status();
  return FamilyJson::parse(*text);
}

absl::StatusOr<ModelConfig> ParsedFamily(const FamilyJson& config) {
  return ParseModelConfig(config.dump(), "config.json", std::nullopt, "");
}

ModelConfig Read(const FamilyJson& config) {
  const auto model = ParsedFamily(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : ModelConfig();
}

// Expects an error that names the key.
void ExpectWrong(const FamilyJson& config, const std::string& key) {
  const auto model = ParsedFamily(config);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << key;
  EXPECT_TRUE(absl::StrContains(model.status().message(), absl::StrCat("json: ", key, ": found ")))
      << model.status() << "\nwanted: " << key;
}

FamilyJson Changed(FamilyJson config, const std::string& key, const FamilyJson& value) {
  config[key] = value;
  return config;
}
FamilyJson Lacking(FamilyJson config, const std::string& key) {
  config.erase(key);
  return config;
}

std::vector<int> SlidingLayers(const ModelConfig& model) {
  std::vector<int> layers;
  for (int i = 0; i < model.num_layers; ++i) {
    if (model.windows[i] > 0) layers.push_back(i);
  }
  return layers;
}

TEST(ModelFamilies, HaveUniqueNames) {
  std::set<std::string> types, architectures;
  for (const ModelFamily& family : ModelFamilies()) {
    EXPECT_TRUE(types.insert(family.model_type).second) << family.model_type;
    EXPECT_TRUE(architectures.insert(family.architecture).second) << family.architecture;
    EXPECT_EQ(FamilyOfType(family.model_type), &family);
    EXPECT_EQ(FamilyOfArchitecture(family.architecture), &family);
    if (family.text_family != nullptr) {
      EXPECT_NE(FamilyOfType(family.text_family), nullptr);
    }
    for (const FamilyKey& key : family.keys) {
      EXPECT_TRUE(key.only == nullptr || FamilyJson::accept(key.only)) << key.key;
    }
  }
  EXPECT_EQ(FamilyOfType("gpt2"), nullptr);
}

TEST(Gemma2, SoftCapsAndSlidesInEveryOtherLayer) {
  const FamilyJson config = GoldenConfig("gemma2");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.attention_soft_cap, 4.0f);
  EXPECT_EQ(model.logits_soft_cap, 9.0f);
  EXPECT_EQ(model.windows, (std::vector<int>{9, 0, 9, 0}));
  EXPECT_FLOAT_EQ(model.attention_scale, 1 / std::sqrt(26.0f));
  EXPECT_FLOAT_EQ(model.embedding_scale, std::sqrt(72.0f));
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_TRUE(model.normalizes_inputs && model.normalizes_outputs && model.tied_embeddings);
  EXPECT_EQ(model.query_key_norm, QueryKeyNorm::kNone);
  // An absent cap means the reference's default; null means no cap.
  EXPECT_EQ(Read(Lacking(config, "attn_logit_softcapping")).attention_soft_cap, 50.0f);
  EXPECT_EQ(Read(Lacking(config, "final_logit_softcapping")).logits_soft_cap, 30.0f);
  EXPECT_EQ(Read(Changed(config, "final_logit_softcapping", nullptr)).logits_soft_cap, 0.0f);
  ExpectWrong(Changed(config, "final_logit_softcapping", -1), "final_logit_softcapping");
  ExpectWrong(Changed(config, "hidden_activation", "gelu"), "hidden_activation");
  ExpectWrong(Changed(config, "use_bidirectional_attention", true), "use_bidirectional_attention");
  ExpectWrong(Changed(config, "query_pre_attn_scalar", 0), "query_pre_attn_scalar");
}

TEST(Gemma3, SlidingLayersUseTheLocalRope) {
  const FamilyJson config = GoldenConfig("gemma3-text");
  const ModelConfig model = Read(config);
  EXPECT_EQ(SlidingLayers(model), (std::vector<int>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(model.rope.theta, 1e6);
  EXPECT_EQ(model.local_rope.theta, 1e4);
  for (int i = 0; i < model.num_layers; ++i) {
    EXPECT_EQ(model.rotations[i],
              model.windows[i] > 0 ? LayerRotation::kLocal : LayerRotation::kMain);
  }
  EXPECT_EQ(model.query_key_norm, QueryKeyNorm::kEachHead);
  EXPECT_EQ(model.attention_soft_cap, 0.0f);

  // The form that newer versions of the reference write.
  FamilyJson newer = Lacking(Lacking(config, "rope_theta"), "rope_local_base_freq");
  newer["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  newer["rope_scaling"] = nullptr;
  const ModelConfig same = Read(newer);
  EXPECT_EQ(same.rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(same.rope.theta, 1e6);
  EXPECT_EQ(same.local_rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(same.local_rope.theta, 1e4);
  newer["rope_parameters"].erase("sliding_attention");
  ExpectWrong(newer, "rope_parameters.sliding_attention");
  newer["rope_parameters"]["other_attention"] = FamilyJson::object();
  ExpectWrong(newer, "rope_parameters.other_attention");
  ExpectWrong(Changed(config, "rope_local_base_freq", "x"), "rope_local_base_freq");
  const ModelConfig every_second = Read(Changed(config, "sliding_window_pattern", 2));
  EXPECT_EQ(SlidingLayers(every_second), (std::vector<int>{0, 2, 4, 6}));
}

TEST(ModelsWithOtherParts, ReadTheTextPart) {
  const FamilyJson config = GoldenConfig("gemma3-nested");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.family, "gemma3_text");
  EXPECT_TRUE(model.has_other_parts && model.tied_embeddings);
  EXPECT_EQ(model.rope.factor, 8.0);
  EXPECT_EQ(model.eos_token_ids, (std::vector<TokenId>{2, 4}));
  const ModelConfig mistral = Read(GoldenConfig("mistral3-nested"));
  EXPECT_EQ(mistral.family, "mistral");
  EXPECT_FALSE(mistral.tied_embeddings);
  // The text part's value takes precedence over the whole model's.
  FamilyJson untied = Changed(config, "tie_word_embeddings", false);
  EXPECT_FALSE(Read(untied).tied_embeddings);
  untied["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(Read(untied).tied_embeddings);

  ExpectWrong(Lacking(config, "text_config"), "text_config");
  ExpectWrong(Changed(config, "text_config", FamilyJson::array()), "text_config");
  ExpectWrong(Changed(config, "audio_config", {{"layers", 2}}), "audio_config");
  FamilyJson inside = config;
  inside["text_config"]["hidden_size"] = "many";
  ExpectWrong(inside, "text_config.hidden_size");
  inside = config;
  inside["text_config"]["model_type"] = "llama";
  ExpectWrong(inside, "text_config.model_type");
  inside = config;
  inside["text_config"]["attention_sinks"] = 4;
  ExpectWrong(inside, "text_config.attention_sinks");
  // The largest published model omits these keys.
  inside = config;
  for (const char* const key :
       {"vocab_size", "max_position_embeddings", "num_attention_heads", "num_key_value_heads",
        "head_dim", "rms_norm_eps", "rope_theta", "sliding_window_pattern"}) {
    inside["text_config"].erase(key);
  }
  const ModelConfig defaults = Read(inside);
  EXPECT_EQ(defaults.vocab_size, 262208);
  EXPECT_EQ(defaults.context_length, 131072);
  EXPECT_EQ(defaults.num_heads, 8);
  EXPECT_EQ(defaults.num_kv_heads, 4);
  EXPECT_EQ(defaults.head_dim, 256);
  EXPECT_EQ(defaults.rope.theta, 1e6);
}

TEST(Phi3, RotatesPartOfAHeadWithLongRope) {
  const FamilyJson config = GoldenConfig("phi3-longrope");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.rotary_dim, 24);
  EXPECT_EQ(model.head_dim, 32);
  EXPECT_EQ(model.rope.type, RopeConfig::Type::kLongRope);
  EXPECT_EQ(model.rope.original_context, 6);
  EXPECT_EQ(model.num_cache_variants(), 2);
  EXPECT_NEAR(model.rope.magnitude, std::sqrt(1 + std::log(192.0 / 6) / std::log(6.0)), 1e-12);
  EXPECT_EQ(model.windows, (std::vector<int>{500, 500}));
  EXPECT_EQ(Read(Lacking(config, "sliding_window")).windows, (std::vector<int>{0, 0}));
  FamilyJson wrong = config;
  wrong["rope_scaling"]["long_factor"].erase(0);
  ExpectWrong(wrong, "rope_scaling.long_factor");
  wrong = config;
  wrong["rope_scaling"]["short_factor"][2] = 0;
  ExpectWrong(wrong, "rope_scaling.short_factor");
  ExpectWrong(Changed(config, "partial_rotary_factor", 0.01), "partial_rotary_factor");
  ExpectWrong(Changed(config, "full_attn_mod", 2), "full_attn_mod");
  FamilyJson stretched = config;
  stretched["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(Read(stretched).rope.magnitude, 1.25);
}

TEST(Yarn, LengthensTheContext) {
  const FamilyJson config = GoldenConfig("qwen2-yarn");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.context_length, 128);
  EXPECT_EQ(model.rope.type, RopeConfig::Type::kYarn);
  EXPECT_NEAR(model.rope.magnitude, 0.1 * std::log(4.0) + 1, 1e-12);
  const auto with = [&](const char* key, const FamilyJson& value) {
    FamilyJson changed = config;
    changed["rope_scaling"][key] = value;
    return changed;
  };
  EXPECT_EQ(Read(with("attention_factor", 1.5)).rope.magnitude, 1.5);
  FamilyJson mscale = with("mscale", 2.0);
  mscale["rope_scaling"]["mscale_all_dim"] = 0.5;
  EXPECT_NEAR(Read(mscale).rope.magnitude, (0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1),
              1e-12);
  EXPECT_FALSE(Read(with("truncate", false)).rope.rounds_range);
  ExpectWrong(with("beta_fast", 0.5), "rope_scaling.beta_fast");
  ExpectWrong(with("factor", 1e9), "rope_scaling.factor");
  ExpectWrong(with("finetuned", true), "rope_scaling.finetuned");
}

TEST(Olmo2, NormalisesOutputsAndAllHeadsTogether) {
  const ModelConfig model = Read(GoldenConfig("olmo2"));
  EXPECT_FALSE(model.normalizes_inputs);
  EXPECT_TRUE(model.normalizes_outputs);
  EXPECT_EQ(model.query_key_norm, QueryKeyNorm::kAllHeads);
}

TEST(Granite, HasMultipliers) {
  const FamilyJson config = GoldenConfig("granite");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.embedding_scale, 12.0f);
  EXPECT_EQ(model.residual_scale, 0.36f);
  EXPECT_EQ(model.attention_scale, 0.109375f);
  EXPECT_EQ(model.logits_scale, 0.125f);
  EXPECT_EQ(Read(Lacking(config, "attention_multiplier")).attention_scale, 1.0f);
  // In a family that does not read the key, it must not change anything.
  const FamilyJson llama = GoldenConfig("llama-gqa");
  ExpectWrong(Changed(llama, "residual_multiplier", 0.5), "residual_multiplier");
  EXPECT_EQ(Read(Changed(llama, "residual_multiplier", 1.0)).residual_scale, 1.0f);
}

TEST(SmolLm3, ListedLayersHaveNoRotation) {
  const FamilyJson config = GoldenConfig("smollm3");
  const std::vector<LayerRotation> all_but_last = {LayerRotation::kMain, LayerRotation::kMain,
                                                   LayerRotation::kMain, LayerRotation::kNone};
  EXPECT_EQ(Read(config).rotations, all_but_last);
  const FamilyJson unlisted = Lacking(config, "no_rope_layers");
  EXPECT_EQ(Read(unlisted).rotations, all_but_last);
  EXPECT_EQ(Read(Changed(unlisted, "no_rope_layer_interval", 2)).rotations[1],
            LayerRotation::kNone);
  ExpectWrong(Changed(config, "no_rope_layers", {1, 1}), "no_rope_layers");
  ExpectWrong(Changed(config, "no_rope_layers", {1, 1, 1, 2}), "no_rope_layers");
  ExpectWrong(Changed(config, "use_sliding_window", true), "use_sliding_window");
}

TEST(Mixtral, HasExpertsInEveryLayer) {
  const FamilyJson config = GoldenConfig("mixtral");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.num_experts, 4);
  EXPECT_EQ(model.experts_per_row, 2);
  EXPECT_EQ(model.expert_size, 72);
  EXPECT_TRUE(model.renormalises_experts && model.has_experts(0) && model.has_experts(1));
  EXPECT_EQ(model.windows, (std::vector<int>{0, 0}));
  EXPECT_EQ(Read(Lacking(config, "num_local_experts")).num_experts, 8);
  EXPECT_EQ(Read(Lacking(config, "sliding_window")).windows, (std::vector<int>{0, 0}));
  ExpectWrong(Changed(config, "num_experts_per_tok", 5), "num_experts_per_tok");
  ExpectWrong(Changed(config, "num_local_experts", 0), "num_local_experts");
  // A family without experts refuses any number of them.
  ExpectWrong(Changed(GoldenConfig("llama-gqa"), "num_experts", 8), "num_experts");
}

TEST(Qwen3Moe, HasExpertsInSomeLayers) {
  const FamilyJson config = GoldenConfig("qwen3-moe-mixed");
  const ModelConfig model = Read(config);
  EXPECT_EQ(model.num_experts, 6);
  EXPECT_EQ(model.expert_size, 48);
  EXPECT_FALSE(model.renormalises_experts);
  EXPECT_EQ(model.expert_layers, (std::vector<bool>{false, false, false, true}));
  const FamilyJson every = Changed(config, "decoder_sparse_step", 1);
  EXPECT_EQ(Read(every).expert_layers, (std::vector<bool>{true, false, true, true}));
  // The newer name of the key.
  EXPECT_EQ(Read(Changed(Lacking(config, "num_experts"), "num_local_experts", 5)).num_experts, 5);
  EXPECT_EQ(Read(Lacking(config, "num_experts")).num_experts, 128);
  ExpectWrong(Changed(config, "mlp_only_layers", {4}), "mlp_only_layers");
  ExpectWrong(Changed(config, "mlp_only_layers", {-1}), "mlp_only_layers");
  ExpectWrong(Changed(config, "norm_topk_prob", 1), "norm_topk_prob");
}

TEST(Glm4, RotatesHalfOfAHead) {
  const ModelConfig model = Read(GoldenConfig("glm4"));
  EXPECT_EQ(model.rotary_dim, 12);
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.output_bias);
  EXPECT_TRUE(model.normalizes_inputs && model.normalizes_outputs);
}

TEST(Cohere2, HasParallelPartsAndUnrotatedFullAttention) {
  const FamilyJson config = GoldenConfig("cohere2");
  const ModelConfig model = Read(config);
  EXPECT_TRUE(model.is_parallel && model.tied_embeddings);
  EXPECT_EQ(model.norm_form, NormForm::kLayer);
  EXPECT_EQ(model.logits_scale, 0.25f);
  EXPECT_EQ(model.windows, (std::vector<int>{10, 10, 10, 0}));
  EXPECT_EQ(model.rotations[2], LayerRotation::kMain);
  EXPECT_EQ(model.rotations[3], LayerRotation::kNone);
  EXPECT_EQ(Read(Lacking(config, "logit_scale")).logits_scale, 0.0625f);
  ExpectWrong(Changed(config, "use_parallel_block", false), "use_parallel_block");
  ExpectWrong(Changed(config, "use_qk_norm", true), "use_qk_norm");
}

}  // namespace
}  // namespace tandem
