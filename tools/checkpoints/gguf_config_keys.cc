#include "tools/checkpoints/gguf_config_keys.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_head.h"

namespace tandem {
namespace {

// Adds keys of an architecture, "block_count" as "llama.block_count".
class KeyWriter {
 public:
  KeyWriter(const ModelConfig& config, const GgufForm& form, GgufHeader* header)
      : config_(config), family_(*FamilyOfType(config.family)), form_(form), header_(*header) {}

  void AddSizes() {
    header_.AddString("general.architecture", form_.architecture);
    header_.AddUint32("general.quantization_version", 2);
    Int("context_length", config_.context_length);
    Int("embedding_length", config_.hidden_size);
    Int("block_count", config_.num_layers);
    Int("feed_forward_length", config_.intermediate_size);
    Int("attention.head_count", config_.num_heads);
    Int("attention.head_count_kv", config_.num_kv_heads);
    Int("attention.key_length", config_.head_dim);
    Int("attention.value_length", config_.head_dim);
    Int("rope.dimension_count", config_.rotary_dim);
    Int("vocab_size", config_.vocab_size);
    if (config_.num_experts > 0) AddExperts();
    Float(config_.norm_form == NormForm::kRms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon",
          config_.rms_norm_epsilon);
  }

  void AddWindows() {
    // Mistral's and mixtral's is llama's.
    const WindowRule rule = FamilyOfGguf(form_.architecture, /*has_experts=*/false)->window_rule;
    if (rule != WindowRule::kPattern && rule != WindowRule::kEveryLayer) return;
    const int window = *absl::c_max_element(config_.windows);
    if (window > 0 || form_.window == 0) Int("attention.sliding_window", window);
    if (window == 0 && form_.window < 0) Int("attention.sliding_window", config_.context_length);
    if (rule != WindowRule::kPattern) return;
    std::vector<bool> slides;
    bool is_usual = true;
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      slides.push_back(config_.windows[layer] > 0);
      is_usual &= slides.back() == ((layer + 1) % family_.window_pattern != 0);
    }
    if (is_usual || (window == 0 && form_.window == 0)) return;
    header_.AddBools(Key("attention.sliding_window_pattern"), slides);
  }

  void AddRope() {
    const RopeConfig& rope = config_.rope;
    Float("rope.freq_base", rope.theta);
    const bool has_local = absl::c_linear_search(config_.rotations, LayerRotation::kLocal);
    if (has_local && config_.local_rope.theta != RopeConfig().theta) {
      Float("rope.freq_base_swa", config_.local_rope.theta);
    }
    double magnitude = rope.magnitude;
    switch (rope.type) {
      case RopeConfig::Type::kDefault:
      case RopeConfig::Type::kLlama3:
        break;
      case RopeConfig::Type::kLinear:
        AddScaling("linear");
        Float("rope.scaling.factor", rope.factor);
        break;
      case RopeConfig::Type::kYarn:
        AddScaling("yarn");
        Float("rope.scaling.factor", rope.factor);
        Int("rope.scaling.original_context_length", rope.original_context);
        Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
        Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
        magnitude /= 0.1 * std::log(rope.factor) + 1.0;  // which is derived
        break;
      case RopeConfig::Type::kLongRope:
        AddScaling("longrope");
        Int("rope.scaling.original_context_length", rope.original_context);
        break;
    }
    if (static_cast<float>(magnitude) != 1.0f) Float("rope.scaling.attn_factor", magnitude);
  }

  void AddScales() {
    if (family_.Reads("residual_multiplier")) {
      Float("embedding_scale", config_.embedding_scale);
      Float("residual_scale", config_.residual_scale);
      Float("attention.scale", config_.attention_scale);
    }
    if (family_.Reads("logits_scaling")) Float("logit_scale", 1.0f / config_.logits_scale);
    if (family_.Reads("logit_scale")) Float("logit_scale", config_.logits_scale);
    if (config_.attention_soft_cap > 0) {
      Float("attn_logit_softcapping", config_.attention_soft_cap);
    }
    if (config_.logits_soft_cap > 0) Float("final_logit_softcapping", config_.logits_soft_cap);
  }

  void AddDraftHead() {
    if (config_.state_input == StateInput::kNone) return;
    // Without them it reads those that the target's size says.
    if (!config_.target_layers.empty()) {
      header_.AddInt32s(Key(kGgufHeadLayers), config_.target_layers);
    }
    Int(kGgufHeadTargetSize, config_.target_hidden_size);
    if (config_.state_input == StateInput::kNextToEmbedding) {
      header_.AddBool(Key(kGgufHeadNormsResidual), config_.norms_residual);
    }
  }

 private:
  void AddExperts() {
    Int("expert_count", config_.num_experts);
    Int("expert_used_count", config_.experts_per_row);
    if (family_.expert_rule == ExpertRule::kSparseSteps) {
      Int("expert_feed_forward_length", config_.expert_size);
    }
  }
  std::string Key(absl::string_view name) const {
    return absl::StrCat(form_.architecture, ".", name);
  }
  void Int(absl::string_view name, int value) {
    header_.AddUint32(Key(name), static_cast<uint32_t>(value));
  }
  void Float(absl::string_view name, double value) {
    header_.AddFloat32(Key(name), static_cast<float>(value));
  }
  void AddScaling(absl::string_view type) {
    header_.AddString(Key("rope.scaling.type"), std::string(type));
  }

  const ModelConfig& config_;
  const ModelFamily& family_;
  const GgufForm& form_;
  GgufHeader& header_;
};

bool AreNear(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

// The windows that shorten what a layer sees.
std::vector<int> EffectiveWindows(const ModelConfig& config) {
  std::vector<int> windows = config.windows;
  for (int& window : windows) {
    if (window >= config.context_length) window = 0;
  }
  return windows;
}

// A file has numbers of 32 bits, and divisors in place of a rule.
bool TurnAlike(const RopeConfig& a, const RopeConfig& b, int rotary_dim) {
  const bool is_long = a.type == RopeConfig::Type::kLongRope;
  if (is_long != (b.type == RopeConfig::Type::kLongRope)) return false;
  if (is_long && a.original_context != b.original_context) return false;
  if (!AreNear(a.magnitude, b.magnitude)) return false;
  for (const bool longer : {false, true}) {
    if (!absl::c_equal(a.InverseFrequencies(rotary_dim, longer && is_long),
                       b.InverseFrequencies(rotary_dim, longer && is_long), AreNear)) {
      return false;
    }
  }
  return true;
}

// What config.json calls the first thing that differs; empty if nothing does.
std::string DifferenceOf(const ModelConfig& a, const ModelConfig& b) {
  if (EffectiveWindows(a) != EffectiveWindows(b)) return "a sliding window";
  if (a.rotations != b.rotations) return "which layers have positions";
  if (a.rotary_dim != b.rotary_dim) return "partial_rotary_factor";
  if (!TurnAlike(a.rope, b.rope, a.rotary_dim)) return "rope_scaling";
  const bool has_local = absl::c_linear_search(a.rotations, LayerRotation::kLocal);
  if (has_local && !TurnAlike(a.local_rope, b.local_rope, a.rotary_dim)) {
    return "the scaling of positions in sliding layers";
  }
  const struct {
    const char* name;
    float a, b;
  } scales[] = {
      {"query_pre_attn_scalar or another scale of scores", a.attention_scale, b.attention_scale},
      {"attn_logit_softcapping", a.attention_soft_cap, b.attention_soft_cap},
      {"final_logit_softcapping", a.logits_soft_cap, b.logits_soft_cap},
      {"a scale of embeddings", a.embedding_scale, b.embedding_scale},
      {"residual_multiplier", a.residual_scale, b.residual_scale},
      {"a scale of logits", a.logits_scale, b.logits_scale},
      {"the epsilon of norms", a.rms_norm_epsilon, b.rms_norm_epsilon},
  };
  for (const auto& scale : scales) {
    if (!AreNear(scale.a, scale.b)) return scale.name;
  }
  if (a.expert_layers != b.expert_layers) {
    return "which layers have experts (decoder_sparse_step, mlp_only_layers)";
  }
  if (a.renormalises_experts != b.renormalises_experts) return "norm_topk_prob";
  const bool is_same =
      a.vocab_size == b.vocab_size && a.hidden_size == b.hidden_size &&
      a.intermediate_size == b.intermediate_size && a.num_layers == b.num_layers &&
      a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim &&
      a.context_length == b.context_length && a.norm_form == b.norm_form &&
      a.norms_inputs == b.norms_inputs && a.norms_outputs == b.norms_outputs &&
      a.is_parallel == b.is_parallel && a.query_key_norm == b.query_key_norm &&
      a.activation == b.activation && a.tied_embeddings == b.tied_embeddings &&
      a.qkv_bias == b.qkv_bias && a.output_bias == b.output_bias && a.mlp_bias == b.mlp_bias &&
      a.num_experts == b.num_experts && a.experts_per_row == b.experts_per_row &&
      a.expert_size == b.expert_size && a.state_input == b.state_input &&
      a.target_hidden_size == b.target_hidden_size && a.target_layers == b.target_layers &&
      a.num_states == b.num_states && a.norms_states == b.norms_states &&
      a.norms_residual == b.norms_residual && a.has_own_embedding == b.has_own_embedding &&
      a.draft_vocab_size == b.draft_vocab_size;
  return is_same ? "" : "the shape of the model";
}

}  // namespace

void AddConfigKeys(const ModelConfig& config, const GgufForm& form, GgufHeader* header) {
  KeyWriter writer(config, form, header);
  writer.AddSizes();
  writer.AddWindows();
  writer.AddRope();
  writer.AddScales();
  writer.AddDraftHead();
}

std::vector<GgufRopeTensor> RopeTensorsOf(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.type == RopeConfig::Type::kLongRope) {
    return {{kGgufLongDivisors, rope.long_divisors}, {kGgufShortDivisors, rope.short_divisors}};
  }
  std::vector<float> divisors = rope.divisors;
  if (rope.type == RopeConfig::Type::kLlama3) {
    RopeConfig plain;
    plain.theta = rope.theta;
    divisors = plain.InverseFrequencies(config.rotary_dim);
    const std::vector<float> scaled = rope.InverseFrequencies(config.rotary_dim);
    for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  }
  if (divisors.empty()) return {};
  return {{kGgufDivisors, std::move(divisors)}};
}

absl::Status CheckIsReadAs(const ModelConfig& config, absl::string_view beginning,
                           const std::string& source) {
  const auto file = GgufFile::ParseBeginning(
      {reinterpret_cast<const std::byte*>(beginning.data()), beginning.size()}, "the file");
  if (!file.ok()) return file.status();
  const absl::StatusOr<ModelConfig> read = ReadGgufConfig(**file);
  if (!read.ok()) {
    return HasNoPlaceInGguf(source, absl::StrCat("what it says (", read.status().message(), ")"));
  }
  const std::string difference = DifferenceOf(config, *read);
  return difference.empty() ? absl::OkStatus() : HasNoPlaceInGguf(source, difference);
}

absl::Status HasNoPlaceInGguf(const std::string& source, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(source, ": ", what,
                   " has no place in a GGUF file; --out of a folder keeps the model's own files"));
}

}  // namespace tandem
