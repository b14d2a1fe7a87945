#include "model/checkpoint/model_families.h"

#include <iterator>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

constexpr FamilyKey kGemma2Keys[] = {{"attn_logit_softcapping"},
                                     {"final_logit_softcapping"},
                                     {"query_pre_attn_scalar"},
                                     {"sliding_window_size"}};
constexpr FamilyKey kGemma3Keys[] = {{"attn_logit_softcapping"},
                                     {"final_logit_softcapping"},
                                     {"query_pre_attn_scalar"},
                                     {"sliding_window_pattern"}};
constexpr FamilyKey kPhi3Keys[] = {
    {"original_max_position_embeddings"}, {"full_attn_mod", "1"}, {"interpolate_factor", "1"}};
constexpr FamilyKey kGraniteKeys[] = {{"attention_multiplier"},
                                      {"embedding_multiplier"},
                                      {"logits_scaling"},
                                      {"residual_multiplier"}};
constexpr FamilyKey kSmolLm3Keys[] = {{"pretraining_tp"}};
// Many keys with one allowed value: the first form of this family wrote them down.
constexpr FamilyKey kCohere2Keys[] = {{"logit_scale"},
                                      {"sliding_window_pattern"},
                                      {"layer_switch"},
                                      {"order_of_interleaved_layers", "\"local_attn_first\""},
                                      {"position_embedding_type", "\"rope_gptj\""},
                                      {"rotary_pct", "1.0"},
                                      {"use_embedding_sharing", "true"},
                                      {"use_gated_activation", "true"},
                                      {"use_parallel_block", "true"}};

constexpr FamilyKey kMixtralKeys[] = {
    {"output_router_logits"}, {"router_aux_loss_coef"}, {"router_jitter_noise"}};  // for training
constexpr FamilyKey kQwen3MoeKeys[] = {
    {"num_experts"}, {"num_local_experts"}, {"output_router_logits"}, {"router_aux_loss_coef"}};

// In Llama's names, both norms of a layer normalise inputs.
constexpr RenamedPart kGemmaParts[] = {{"post_attention_layernorm", kAttentionOutputNorm},
                                       {"pre_feedforward_layernorm", kMlpNorm},
                                       {"post_feedforward_layernorm", kMlpOutputNorm}};
constexpr RenamedPart kOlmo2Parts[] = {{"post_attention_layernorm", kAttentionOutputNorm},
                                       {"post_feedforward_layernorm", kMlpOutputNorm}};
constexpr RenamedPart kGlm4Parts[] = {{"post_self_attn_layernorm", kAttentionOutputNorm},
                                      {"post_mlp_layernorm", kMlpOutputNorm}};

constexpr RenamedPart kMixtralParts[] = {{"block_sparse_moe.gate", "mlp.gate"},
                                         {"w1", "gate_proj"},
                                         {"w2", "down_proj"},
                                         {"w3", "up_proj"}};

constexpr GgufForm kLlamaGguf = {.architecture = "llama",
                                 .rotary_pairs = RotaryPairs::kInterleaved,
                                 .extras = GgufExtras::kLlamas};

const ModelFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .may_have_attention_bias = true,
     .may_have_mlp_bias = true,
     .gguf = kLlamaGguf},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .defaults = {.num_kv_heads = 8, .window = 4096},
     .window_rule = WindowRule::kEveryLayer,
     .gguf = kLlamaGguf},
    {.model_type = "mistral3",
     .architecture = "Mistral3ForConditionalGeneration",
     .text_family = "mistral"},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .defaults = {.num_kv_heads = 32, .window = 4096},
     .has_qkv_bias = true,
     .window_rule = WindowRule::kUpperLayers,
     .gguf = {.architecture = "qwen2", .heads_fill_rows = true}},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .defaults = {.num_kv_heads = 32, .head_dim = 128, .window = 4096},
     .may_have_attention_bias = true,
     .form = {.query_key_norm = QueryKeyNorm::kEachHead},
     .window_rule = WindowRule::kUpperLayers,
     .gguf = {.architecture = "qwen3"}},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .defaults = {.num_kv_heads = 4, .num_experts = 128, .experts_per_row = 8, .expert_size = 768},
     .may_have_attention_bias = true,
     .form = {.query_key_norm = QueryKeyNorm::kEachHead},
     .expert_rule = ExpertRule::kSparseSteps,
     .keys = kQwen3MoeKeys,
     .gguf = {.architecture = "qwen3moe"}},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .defaults =
         {.num_kv_heads = 8, .num_experts = 8, .experts_per_row = 2, .epsilon = 1e-5, .theta = 1e6},
     .window_rule = WindowRule::kEveryLayer,
     .expert_rule = ExpertRule::kEveryLayer,
     .keys = kMixtralKeys,
     .parts = kMixtralParts,
     .gguf = kLlamaGguf},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .defaults = {.num_kv_heads = 4,
                  .head_dim = 256,
                  .window = 4096,
                  .attention_soft_cap = 50.0,
                  .logits_soft_cap = 30.0,
                  .ties_embeddings = true},
     .may_have_attention_bias = true,
     .form = {.normalizes_outputs = true, .activation = Activation::kGeluTanh},
     .window_rule = WindowRule::kPattern,
     .window_pattern = 2,
     .norm_offset = 1.0f,
     .scales_embeddings_by_root = true,
     .keys = kGemma2Keys,
     .parts = kGemmaParts,
     .gguf = {.architecture = "gemma2",
              .head = GgufHead::kTied,
              .window = 4096,
              .num_layers_scaled_by_hidden = 46}},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .defaults = {.vocab_size = 262208,
                  .context_length = 131072,
                  .num_heads = 8,
                  .num_kv_heads = 4,
                  .head_dim = 256,
                  .window = 4096,
                  .theta = 1e6,
                  .ties_embeddings = true},
     .may_have_attention_bias = true,
     .form = {.normalizes_outputs = true,
              .query_key_norm = QueryKeyNorm::kEachHead,
              .activation = Activation::kGeluTanh},
     .window_rule = WindowRule::kPattern,
     .window_pattern = 6,
     .rotation_rule = RotationRule::kLocalWindows,
     .norm_offset = 1.0f,
     .scales_embeddings_by_root = true,
     .keys = kGemma3Keys,
     .parts = kGemmaParts,
     .gguf = {.architecture = "gemma3", .num_layers_scaled_by_hidden = 62}},
    {.model_type = "gemma3",
     .architecture = "Gemma3ForConditionalGeneration",
     .text_family = "gemma3_text"},
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .defaults = {.context_length = 4096, .epsilon = 1e-5},
     .window_rule = WindowRule::kEveryLayer,
     .partial_rotary = 1.0,
     .keys = kPhi3Keys,
     .gguf = {.architecture = "phi3",
              .extras = GgufExtras::kRopeFactors,
              .joins_gate_and_up = true,
              .heads_fill_rows = true}},
    {.model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .defaults = {.epsilon = 1e-5},
     .may_have_attention_bias = true,
     .form = {.normalizes_inputs = false,
              .normalizes_outputs = true,
              .query_key_norm = QueryKeyNorm::kAllHeads},
     .parts = kOlmo2Parts,
     .gguf = {.architecture = "olmo2", .head = GgufHead::kOwn, .heads_fill_rows = true}},
    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .may_have_attention_bias = true,
     .may_have_mlp_bias = true,
     .keys = kGraniteKeys,
     .gguf = {.architecture = "granite",
              .rotary_pairs = RotaryPairs::kInterleaved,
              .extras = GgufExtras::kLlamas}},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .defaults = {.num_kv_heads = 4, .theta = 2e6, .ties_embeddings = true},
     .may_have_attention_bias = true,
     .may_have_mlp_bias = true,
     .rotation_rule = RotationRule::kListedLayers,
     .keys = kSmolLm3Keys,
     .gguf = {.architecture = "smollm3", .rotary_pairs = RotaryPairs::kInterleaved}},
    {.model_type = "glm4",
     .architecture = "Glm4ForCausalLM",
     .defaults = {.num_kv_heads = 2, .head_dim = 128, .epsilon = 1.5625e-7},
     .may_have_attention_bias = true,
     .has_output_bias = false,
     .form = {.normalizes_outputs = true},
     .rotary_pairs = RotaryPairs::kInterleaved,
     .partial_rotary = 0.5,
     .parts = kGlm4Parts,
     .gguf = {.architecture = "glm4",
              .rotary_pairs = RotaryPairs::kInterleaved,
              .joins_gate_and_up = true}},
    {.model_type = "cohere2",
     .architecture = "Cohere2ForCausalLM",
     .defaults = {.window = 4096, .epsilon = 1e-5, .logit_scale = 0.0625, .ties_embeddings = true},
     .may_have_attention_bias = true,
     .form = {.norm_form = NormForm::kLayer, .is_parallel = true},
     .window_rule = WindowRule::kPattern,
     .window_pattern = 4,
     .rotation_rule = RotationRule::kOnlyWindows,
     .rotary_pairs = RotaryPairs::kInterleaved,
     .epsilon_key = "layer_norm_eps",
     .keys = kCohere2Keys,
     .gguf = {.architecture = "cohere2",
              .rotary_pairs = RotaryPairs::kInterleaved,
              .head = GgufHead::kTied,
              .heads_fill_rows = true,
              .window = -1}},
    {.model_type = "eagle3",
     .architecture = "LlamaForCausalLMEagle3",
     .defaults = {.context_length = 2048},
     .may_have_attention_bias = true,
     .may_have_mlp_bias = true,
     .form = {.state_input = StateInput::kNextToEmbedding},
     .gguf = {.architecture = "eagle3",
              .rotary_pairs = RotaryPairs::kInterleaved,
              .extras = GgufExtras::kLlamas}},
    {.model_type = "one_layer_head",
     .architecture = "TandemOneLayerHead",
     .defaults = {.context_length = 2048},
     .may_have_attention_bias = true,
     .may_have_mlp_bias = true,
     .form = {.state_input = StateInput::kFused},
     .gguf = {.architecture = "tandem-one-layer", .extras = GgufExtras::kLlamas}},
};

const ModelFamily* Find(const char* ModelFamily::*name, absl::string_view value) {
  const auto* const found =
      absl::c_find_if(kFamilies, [&](const ModelFamily& family) { return family.*name == value; });
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace

bool ModelFamily::Reads(absl::string_view key) const {
  return absl::c_any_of(keys, [key](const FamilyKey& own) { return own.key == key; });
}

LayerRotation ModelFamily::RotationOf(bool slides, bool is_listed) const {
  if (rotation_rule == RotationRule::kLocalWindows && slides) return LayerRotation::kLocal;
  const bool rotates = (rotation_rule != RotationRule::kOnlyWindows || slides) &&
                       (rotation_rule != RotationRule::kListedLayers || is_listed);
  return rotates ? LayerRotation::kMain : LayerRotation::kNone;
}

ModelConfig ModelFamily::NewConfig() const {
  ModelConfig config;
  static_cast<ModelForm&>(config) = form;
  config.family = model_type;
  return config;
}

absl::Span<const ModelFamily> ModelFamilies() { return kFamilies; }

const ModelFamily* FamilyOfType(absl::string_view model_type) {
  return Find(&ModelFamily::model_type, model_type);
}

const ModelFamily* FamilyOfArchitecture(absl::string_view architecture) {
  return Find(&ModelFamily::architecture, architecture);
}

const ModelFamily* FamilyOfGguf(absl::string_view architecture, bool has_experts) {
  const ModelFamily* other = nullptr;
  for (const ModelFamily& family : kFamilies) {
    if (family.gguf.architecture == nullptr || family.gguf.architecture != architecture) continue;
    if ((family.expert_rule != ExpertRule::kNone) == has_experts) return &family;
    if (other == nullptr) other = &family;
  }
  return other;
}

}  // namespace tandem
