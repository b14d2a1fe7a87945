// Parses any text as config.json, and the text after its first zero byte as generation_config.json;
// mostly valid files with a few keys changed. They must be refused with the name of the file, or
// give a configuration whose sizes fit together.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "model/checkpoint/model_config.h"
#include "tests/json_mutator.h"

namespace {

const std::vector<tandem::SortedJson>& Samples() {
  static const auto& samples = *new std::vector<tandem::SortedJson>(tandem::ParseAll({
      R"({"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
          "draft_vocab_size": 200, "norm_before_residual": true, "norm_before_fc": false,
          "eagle_aux_hidden_state_layer_ids": [2, 4], "transformer_layer_config": {
            "model_type": "llama", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 512}})",
      R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": 300,
          "draft_vocab_size": 200, "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "target_hidden_size": 128, "eagle_config": {"use_aux_hidden_state": true,
            "eagle_aux_hidden_state_layer_ids": [1, 3, 5]}})",
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
          "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
          "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
          "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
          "pretraining_tp": 1, "bos_token_id": 0, "eos_token_id": [1, 2],
          "torch_dtype": "float16"})",
      R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
          "sliding_window": 128,
          "rope_scaling": {"type": "linear", "factor": 2.0}, "eos_token_id": 2,
          "quantization_config": null})",
      R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 512,
          "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1,
          "layer_types": ["full_attention", "sliding_attention"]})",
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "head_dim": 32,
          "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 512,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
            "partial_rotary_factor": 1}})",
      R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
          "eos_token_id": [1, 106], "vision_config": {"hidden_size": 16}, "text_config": {
            "model_type": "gemma3_text", "vocab_size": 300, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16,
            "final_logit_softcapping": 30.0, "sliding_window": 8, "sliding_window_pattern": 3,
            "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}})",
      R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
          "num_attention_heads": 4, "max_position_embeddings": 4096,
          "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5,
          "sliding_window": 512, "rope_scaling": {"type": "longrope",
            "short_factor": [1, 1.5, 2, 4], "long_factor": [1, 3, 8, 20]}})",
      R"({"architectures": ["GraniteForCausalLM"], "model_type": "granite", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
          "num_attention_heads": 4, "max_position_embeddings": 128, "rope_theta": 1e4,
          "attention_multiplier": 0.1, "embedding_multiplier": 12.0, "logits_scaling": 8.0,
          "residual_multiplier": 0.2, "rope_scaling": {"type": "yarn", "factor": 4.0,
            "original_max_position_embeddings": 32, "beta_fast": 32.0, "mscale": 1.0}})",
      R"({"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "max_position_embeddings": 128, "no_rope_layers": [1, 0],
          "no_rope_layer_interval": 2})",
      R"({"architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
          "num_attention_heads": 4, "max_position_embeddings": 128, "layer_norm_eps": 1e-5,
          "logit_scale": 0.25, "sliding_window": 10, "use_parallel_block": true})",
      R"({"bos_token_id": 0, "eos_token_id": [1, 299], "temperature": 0.5})"}));
  return samples;
}

}  // namespace

// Changes one of the two files.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tandem::JsonMutator mutator(Samples(), seed);
  const uint8_t* const end = data + size;
  const uint8_t* const zero = std::find<const uint8_t*>(data, end, 0);
  const size_t config_size = zero - data;
  if (config_size == size || mutator.Below(4) != 0) {
    const std::string rest(zero, end);
    if (rest.size() > max_size / 2) return LLVMFuzzerMutate(data, size, max_size);
    size = mutator.MutateText(data, config_size, max_size - rest.size() - 40);
    std::memcpy(data + size, rest.data(), rest.size());
    size += rest.size();
    if (!rest.empty() || mutator.Below(4) != 0) return size;
    constexpr char kGeneration[] = "\0{\"eos_token_id\": [1, 2]}";
    std::memcpy(data + size, kGeneration, sizeof(kGeneration) - 1);
    return size + sizeof(kGeneration) - 1;
  }
  const size_t begin = config_size + 1;
  return begin + mutator.MutateText(data + begin, size - begin, max_size - begin);
}

// All samples but the last are configurations.
static void CheckSamples() {
  for (size_t i = 0; i + 1 < Samples().size(); ++i) {
    TANDEM_CHECK(tandem::ParseModelConfig(Samples()[i].dump(), "sample", std::nullopt, "").ok());
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool checked = (CheckSamples(), true);
  (void)checked;
  absl::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<absl::string_view> generation;
  if (const size_t end = text.find('\0'); end != absl::string_view::npos) {
    generation = text.substr(end + 1);
    text = text.substr(0, end);
  }
  const auto model = tandem::ParseModelConfig(text, "config", generation, "generation");
  if (!model.ok()) {
    const absl::string_view message = model.status().message();
    TANDEM_CHECK(message.size() < 1000 && !absl::StrContains(message, '\n'));
    TANDEM_CHECK(absl::StartsWith(message, "config: ") ||
                 absl::StartsWith(message, "generation: "));
    return 0;
  }
  TANDEM_CHECK(model->num_heads % model->num_kv_heads == 0);
  TANDEM_CHECK(model->windows.size() == static_cast<size_t>(model->num_layers));
  for (const tandem::TokenId id : model->eos_token_ids) {
    TANDEM_CHECK(0 <= id && id < model->vocab_size);
  }
  if (model->is_draft_head()) {
    TANDEM_CHECK(model->num_layers == 1 && model->fc_inputs() > 0);
    TANDEM_CHECK(0 < model->draft_vocab_size && model->draft_vocab_size <= model->vocab_size);
  }
  TANDEM_CHECK(model->rotations.size() == static_cast<size_t>(model->num_layers));
  TANDEM_CHECK(0 < model->rotary_dim && model->rotary_dim <= model->head_dim);
  TANDEM_CHECK(std::isfinite(model->attention_scale) && model->attention_scale > 0.0f);
  for (const tandem::RopeConfig& rope : {model->rope, model->local_rope}) {
    for (const bool is_long : {false, rope.type == tandem::RopeConfig::Type::kLongRope}) {
      for (const float frequency : rope.InverseFrequencies(model->rotary_dim, is_long)) {
        TANDEM_CHECK(std::isfinite(frequency) && frequency >= 0.0f);
      }
    }
    TANDEM_CHECK(std::isfinite(rope.magnitude) && rope.magnitude > 0.0);
  }
  return 0;
}
