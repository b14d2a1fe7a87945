#include "model/model_config.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/config_keys.h"
#include "model/config_limits.h"
#include "model/formats/config_fields.h"
#include "model/formats/gguf.h"
#include "model/formats/json_text.h"
#include "model/formats/quantization_config.h"
#include "model/gguf_config.h"

namespace tandem {
namespace {

using nlohmann::json;

// Which layers of a family attend to a sliding window.
enum class WindowRule {
  kNone,
  kEveryLayer,   // if sliding_window is not null
  kUpperLayers,  // from max_window_layers on, or by layer_types, if use_sliding_window
};

// What the reference's configuration class of a family says about keys that are absent, and what
// its layers do. Reference: Hugging Face transformers, models/<family>/configuration_<family>.py.
struct Family {
  const char* model_type;
  const char* architecture;
  int default_kv_heads;          // 0: as many as query heads
  int default_head_dim;          // 0: hidden_size / num_attention_heads
  bool may_have_attention_bias;  // by the key attention_bias
  bool always_has_qkv_bias;
  bool may_have_mlp_bias;
  bool has_head_norms;
  WindowRule window_rule;
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", 0, 0, true, false, true, false, WindowRule::kNone},
    {"mistral", "MistralForCausalLM", 8, 0, false, false, false, false, WindowRule::kEveryLayer},
    {"qwen2", "Qwen2ForCausalLM", 32, 0, false, true, false, false, WindowRule::kUpperLayers},
    {"qwen3", "Qwen3ForCausalLM", 32, 128, true, false, false, true, WindowRule::kUpperLayers},
};

// No key may be there that would change the result and is not known here.
absl::Status CheckKeys(const Fields& config) {
  static const auto& known = *new HashSet<absl::string_view>([] {
    HashSet<absl::string_view> keys;
    keys.insert(std::begin(kReadKeys), std::end(kReadKeys));
    keys.insert(std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
    for (const auto& entry : kNeutralKeys) keys.insert(entry.key);
    return keys;
  }());
  for (const auto& entry : kNeutralKeys) RETURN_IF_ERROR(config.Only(entry.key, entry.neutral));
  for (const auto& [key, value] : config.object().items()) {
    if (known.contains(key) || value.is_null() || value == false) continue;
    if (IsText(value, "") || ((value.is_array() || value.is_object()) && value.empty())) continue;
    return config.Wrong(key,
                        "nothing, null or false (not implemented, and it might change the result)");
  }
  return absl::OkStatus();
}

absl::StatusOr<const Family*> ReadFamily(const Fields& config) {
  std::string model_types;
  std::string architectures;
  for (const Family& family : kFamilies) {
    absl::StrAppend(&model_types, model_types.empty() ? "" : ", ", family.model_type);
    absl::StrAppend(&architectures, architectures.empty() ? "" : ", ", family.architecture);
  }
  const json* const model_type = config.Find("model_type");
  const json* const architecture_list = config.Find("architectures");
  const Family* found = nullptr;
  if (model_type != nullptr) {
    for (const Family& family : kFamilies) {
      if (IsText(*model_type, family.model_type)) found = &family;
    }
    if (found == nullptr) return config.Wrong("model_type", model_types);
  }
  if (architecture_list != nullptr) {
    if (!architecture_list->is_array()) return config.Wrong("architectures", "a list");
    for (const json& architecture : *architecture_list) {
      const Family* named = nullptr;
      for (const Family& family : kFamilies) {
        if (IsText(architecture, family.architecture)) named = &family;
      }
      if (named == nullptr) return config.Wrong("architectures", architectures);
      if (found != nullptr && found != named) {
        return config.Wrong("architectures",
                            absl::StrCat(found->architecture, ", as model_type or the rest says"));
      }
      found = named;
    }
  }
  if (found == nullptr) return config.Wrong("model_type", model_types);
  return found;
}

absl::Status ReadSizes(const Fields& config, const Family& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(model->vocab_size, config.Int("vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(model->hidden_size, config.Int("hidden_size", 1, kMaxHidden));
  ASSIGN_OR_RETURN(model->intermediate_size, config.Int("intermediate_size", 1, kMaxHidden));
  ASSIGN_OR_RETURN(model->num_layers, config.Int("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(model->num_heads, config.Int("num_attention_heads", 1, kMaxHeads));
  const bool names_kv_heads = config.Has("num_key_value_heads");  // null: one for each query head
  ASSIGN_OR_RETURN(model->num_kv_heads, config.Int("num_key_value_heads", 1, kMaxHeads,
                                                   names_kv_heads || family.default_kv_heads == 0
                                                       ? model->num_heads
                                                       : family.default_kv_heads));
  if (model->num_heads % model->num_kv_heads != 0) {
    return config.Wrong("num_key_value_heads", absl::StrCat("a divisor of the ", model->num_heads,
                                                            " of num_attention_heads"));
  }
  const bool names_head_dim = config.Has("head_dim");
  const bool divides = model->hidden_size % model->num_heads == 0;
  if (config.Find("head_dim") == nullptr && (names_head_dim || family.default_head_dim == 0)) {
    if (!divides) {
      return config.Wrong("head_dim",
                          absl::StrCat("an even integer, as hidden_size ", model->hidden_size,
                                       " is no multiple of ", model->num_heads, " heads"));
    }
    model->head_dim = model->hidden_size / model->num_heads;
  } else {
    ASSIGN_OR_RETURN(model->head_dim,
                     config.Int("head_dim", 2, kMaxHeadDim, family.default_head_dim));
  }
  if (model->head_dim % 2 != 0 || model->head_dim > kMaxHeadDim) {
    return config.Wrong("head_dim", absl::StrCat("an even integer from 2 to ", kMaxHeadDim,
                                                 ", not ", model->head_dim));
  }
  ASSIGN_OR_RETURN(model->context_length, config.Int("max_position_embeddings", 1, kMaxContext));
  ASSIGN_OR_RETURN(const double epsilon, config.Number("rms_norm_eps", kLeastEpsilon, 1.0, 1e-6));
  model->rms_norm_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadLayers(const Fields& config, const Family& family, ModelConfig* model) {
  RETURN_IF_ERROR(config.Only("hidden_act", "silu"));
  ASSIGN_OR_RETURN(model->tied_embeddings, config.Bool("tie_word_embeddings", false));
  model->head_norms = family.has_head_norms;
  ASSIGN_OR_RETURN(const bool attention_bias,
                   config.Bool("attention_bias", family.always_has_qkv_bias));
  if (!family.may_have_attention_bias && attention_bias != family.always_has_qkv_bias) {
    return config.Wrong(
        "attention_bias",
        absl::StrCat(family.always_has_qkv_bias ? "true" : "false", " for ", family.model_type));
  }
  model->qkv_bias = attention_bias;
  model->output_bias = family.may_have_attention_bias && attention_bias;
  ASSIGN_OR_RETURN(model->mlp_bias, config.Bool("mlp_bias", false));
  if (!family.may_have_mlp_bias && model->mlp_bias) {
    return config.Wrong("mlp_bias", absl::StrCat("false for ", family.model_type));
  }
  return absl::OkStatus();
}

// The window of the layers that slide, in tokens, or 0.
absl::StatusOr<int> ReadWindowSize(const Fields& config, const Family& family) {
  const bool is_on_by_default = family.window_rule == WindowRule::kEveryLayer;
  ASSIGN_OR_RETURN(const bool is_on, config.Bool("use_sliding_window", is_on_by_default));
  // The reference's default where the key is absent; null is none.
  const int if_absent = config.Has("sliding_window") ? 0 : 4096;
  switch (family.window_rule) {
    case WindowRule::kEveryLayer:
      if (is_on) return config.Int("sliding_window", 1, kMaxContext, if_absent);
      return config.Wrong("use_sliding_window", absl::StrCat("true for ", family.model_type));
    case WindowRule::kUpperLayers:
      return is_on ? config.Int("sliding_window", 1, kMaxContext, if_absent) : 0;
    case WindowRule::kNone:
      break;
  }
  if (is_on) {
    return config.Wrong("use_sliding_window", absl::StrCat("false for ", family.model_type));
  }
  // A leftover of another family: nobody reads it if the key beside it says so.
  if (config.Find("sliding_window") != nullptr && config.Find("use_sliding_window") == nullptr) {
    return config.Wrong("sliding_window", absl::StrCat("null for ", family.model_type));
  }
  return 0;
}

// layer_types names each layer's attention. Where the reference reads it, it decides which layers
// slide; elsewhere it must not contradict what is computed.
absl::Status ReadWindows(const Fields& config, const Family& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(const int window, ReadWindowSize(config, family));
  ASSIGN_OR_RETURN(const int first_upper, config.Int("max_window_layers", 0, INT_MAX, 28));
  const int first = family.window_rule == WindowRule::kUpperLayers ? first_upper : 0;
  model->windows.assign(model->num_layers, 0);
  for (int layer = first; layer < model->num_layers; ++layer) model->windows[layer] = window;

  const json* const types = config.Find("layer_types");
  if (types == nullptr) return absl::OkStatus();
  if (!types->is_array() || types->size() != static_cast<size_t>(model->num_layers)) {
    return config.Wrong("layer_types", absl::StrCat("a list of ", model->num_layers, " layers"));
  }
  for (int layer = 0; layer < model->num_layers; ++layer) {
    const json& type = (*types)[layer];
    const bool slides = IsText(type, "sliding_attention");
    if (!slides && !IsText(type, "full_attention")) {
      return config.Wrong("layer_types", "full_attention and sliding_attention");
    }
    if (family.window_rule == WindowRule::kUpperLayers && window > 0) {
      model->windows[layer] = slides ? window : 0;
    }
    if (slides != (model->windows[layer] > 0)) {
      return config.Wrong("layer_types",
                          absl::StrCat(slides ? "full" : "sliding", "_attention for layer ", layer,
                                       ", as the other keys say"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRopeScaling(const Fields& scaling, int context_length, RopeConfig* rope) {
  constexpr char kAllowedTypes[] = "default, linear, llama3, dynamic";
  const json* const new_name = scaling.Find("rope_type");
  const json* const old_name = scaling.Find("type");
  if (new_name != nullptr && old_name != nullptr && *new_name != *old_name) {
    return scaling.Wrong("type", absl::StrCat(Shown(*new_name), ", as rope_type says"));
  }
  const json* const type = new_name != nullptr ? new_name : old_name;
  const absl::string_view type_key =
      new_name == nullptr && old_name != nullptr ? "type" : "rope_type";
  const bool is_default =
      type == nullptr ? scaling.Find("factor") == nullptr : IsText(*type, "default");
  std::vector<absl::string_view> keys = {"type", "rope_type", "rope_theta",
                                         "partial_rotary_factor"};
  if (type != nullptr && IsText(*type, "linear")) {
    rope->type = RopeConfig::Type::kLinear;
    keys.push_back("factor");
    ASSIGN_OR_RETURN(rope->factor, scaling.Number("factor", 1, kMaxRopeFactor));
  } else if (type != nullptr && IsText(*type, "llama3")) {
    rope->type = RopeConfig::Type::kLlama3;
    keys.insert(keys.end(), {"factor", "low_freq_factor", "high_freq_factor",
                             "original_max_position_embeddings"});
    ASSIGN_OR_RETURN(rope->factor, scaling.Number("factor", 1, kMaxRopeFactor));
    ASSIGN_OR_RETURN(rope->low_freq_factor,
                     scaling.Number("low_freq_factor", 1e-6, kMaxRopeFactor));
    ASSIGN_OR_RETURN(rope->high_freq_factor,
                     scaling.Number("high_freq_factor", 1e-6, kMaxRopeFactor));
    if (rope->low_freq_factor >= rope->high_freq_factor) {
      return scaling.Wrong("high_freq_factor",
                           absl::StrCat("more than low_freq_factor ", rope->low_freq_factor));
    }
    ASSIGN_OR_RETURN(rope->original_context,
                     scaling.Int("original_max_position_embeddings", 1, kMaxContext));
  } else if (type != nullptr && IsText(*type, "dynamic")) {
    // The reference stretches the base by ((factor * n / m) - (factor - 1)) ^ (dim / (dim - 2)),
    // n = max(m, positions in use), m = max_position_embeddings: by 1 up to m positions, and this
    // engine reads no more than m.
    keys.insert(keys.end(), {"factor", "original_max_position_embeddings"});
    RETURN_IF_ERROR(scaling.Number("factor", 1, kMaxRopeFactor).status());
    RETURN_IF_ERROR(scaling.Only("original_max_position_embeddings", context_length));
  } else if (!is_default) {
    return scaling.Wrong(type_key, kAllowedTypes);
  }
  RETURN_IF_ERROR(scaling.Only("partial_rotary_factor", 1));
  for (const auto& [key, value] : scaling.object().items()) {
    if (absl::c_linear_search(keys, key) || value.is_null() || value == false) continue;
    return scaling.Wrong(key, "nothing with this rope_type");
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const Fields& config, const std::string& file, ModelConfig* model) {
  RopeConfig& rope = model->rope;
  ASSIGN_OR_RETURN(rope.theta, config.Number("rope_theta", 1, kMaxTheta, rope.theta));
  const json* const scaling = config.Find("rope_scaling");
  const json* const parameters = config.Find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters) {
    return config.Wrong("rope_scaling", "nothing beside rope_parameters");
  }
  const absl::string_view key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const json* const object = parameters != nullptr ? parameters : scaling;
  if (object == nullptr) return absl::OkStatus();
  if (!object->is_object()) return config.Wrong(key, "an object or null");
  const Fields fields(*object, file, absl::StrCat(key, "."));
  if (fields.Find("rope_theta") != nullptr) {
    ASSIGN_OR_RETURN(const double theta, fields.Number("rope_theta", 1, kMaxTheta));
    if (config.Find("rope_theta") != nullptr && theta != rope.theta) {
      return fields.Wrong("rope_theta", absl::StrCat(rope.theta, ", as rope_theta beside it says"));
    }
    rope.theta = theta;
  }
  return ReadRopeScaling(fields, model->context_length, &rope);
}

absl::StatusOr<std::vector<TokenId>> ReadEosIds(const Fields& fields, int vocab_size) {
  const std::string allowed =
      absl::StrCat("an id from 0 to ", vocab_size - 1, ", a list of them, or null");
  std::vector<TokenId> ids;
  const json* const value = fields.Find("eos_token_id");
  if (value == nullptr) return ids;
  const absl::Span<const json> list =
      value->is_array() ? absl::MakeConstSpan(value->get_ref<const json::array_t&>())
                        : absl::MakeConstSpan(value, 1);
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return fields.Wrong("eos_token_id", allowed);
    }
    const TokenId token = id.get<TokenId>();
    if (!absl::c_linear_search(ids, token)) ids.push_back(token);
  }
  return ids;
}

absl::StatusOr<JsonDocument> ParseObject(absl::string_view text, const std::string& file) {
  ASSIGN_OR_RETURN(JsonDocument parsed, ParseJsonDocument(text, file));
  if (!parsed->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": found ", Shown(*parsed), ", allowed: an object"));
  }
  return parsed;
}

}  // namespace

std::vector<float> RopeConfig::InverseFrequencies(int head_dim) const {
  // In f32 step by step, as the reference; only the power is rounded once from double, because
  // libraries differ in its last bit.
  std::vector<float> frequencies(head_dim / 2);
  const float scale = static_cast<float>(factor);
  const float low_wavelength = static_cast<float>(original_context / low_freq_factor);
  const float high_wavelength = static_cast<float>(original_context / high_freq_factor);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float power = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    frequencies[i] = frequency;
    if (type == Type::kLinear) frequencies[i] = frequency / scale;
    if (type != Type::kLlama3) continue;
    // Long waves are stretched by the factor, short ones kept, those between blended.
    const float wavelength = static_cast<float>(2.0 * M_PI) / frequency;
    if (wavelength > low_wavelength) {
      frequencies[i] = frequency / scale;
    } else if (wavelength >= high_wavelength) {
      const float smooth = (static_cast<float>(original_context) / wavelength -
                            static_cast<float>(low_freq_factor)) /
                           static_cast<float>(high_freq_factor - low_freq_factor);
      frequencies[i] = (1.0f - smooth) * frequency / scale + smooth * frequency;
    }
  }
  for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= divisors[i];
  return frequencies;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& file,
                                             std::optional<absl::string_view> generation_text,
                                             const std::string& generation_file) {
  ASSIGN_OR_RETURN(const JsonDocument parsed, ParseObject(text, file));
  const Fields config(*parsed, file);
  ASSIGN_OR_RETURN(const Family* const family, ReadFamily(config));
  ModelConfig model;
  model.family = family->model_type;
  RETURN_IF_ERROR(ReadSizes(config, *family, &model));
  RETURN_IF_ERROR(ReadLayers(config, *family, &model));
  RETURN_IF_ERROR(ReadWindows(config, *family, &model));
  RETURN_IF_ERROR(ReadRope(config, file, &model));
  RETURN_IF_ERROR(ParseQuantization(*parsed, file).status());
  RETURN_IF_ERROR(CheckKeys(config));
  ASSIGN_OR_RETURN(model.eos_token_ids, ReadEosIds(config, model.vocab_size));
  if (generation_text.has_value()) {
    ASSIGN_OR_RETURN(const JsonDocument generation, ParseObject(*generation_text, generation_file));
    const Fields fields(*generation, generation_file);
    if (fields.Find("eos_token_id") != nullptr) {
      ASSIGN_OR_RETURN(model.eos_token_ids, ReadEosIds(fields, model.vocab_size));
    }
  }
  return model;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(path));
  if (!gguf.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> opened, GgufFile::Open(gguf));
    return ReadGgufConfig(*opened);
  }
  const std::string file = absl::StrCat(path, "/config.json");
  const std::string generation_file = absl::StrCat(path, "/generation_config.json");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const absl::StatusOr<std::string> generation = ReadFile(generation_file);
  if (absl::IsNotFound(generation.status())) {
    return ParseModelConfig(text, file, std::nullopt, generation_file);
  }
  RETURN_IF_ERROR(generation.status());
  return ParseModelConfig(text, file, *generation, generation_file);
}

}  // namespace tandem
