#include "model/checkpoint/model_config.h"

#include <climits>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/json/config_fields.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/quantization_config.h"
#include "model/checkpoint/rope_config.h"

namespace tandem {
namespace {

using Json = SortedJson;

// Keys that are known for every family, whether model_config.cc reads them or not.
constexpr absl::string_view kKnownKeys =
    "architectures compression_config eos_token_id hidden_act quantization_config rms_norm_eps";

// Keys next to text_config in a model with parts other than text. They are ignored.
constexpr absl::string_view kOuterKeys =
    "boi_token_index eos_token_id eoi_token_index image_token_id image_token_index "
    "mm_tokens_per_image multimodal_projector_bias projector_hidden_act quantization_config "
    "spatial_merge_size video_token_id vision_config vision_end_token_id vision_feature_layer "
    "vision_feature_select_strategy vision_start_token_id";

// Keys next to a speculators head's layer that are ignored: how another program drafts and verifies
// with it, and keys of its trainer.
constexpr absl::string_view kSpeculatorsKeys =
    "architectures compression_config embed_requires_grad has_no_defaults_at_init model_type "
    "quantization_config speculators_config speculators_version";

// Keys that do not change the result of a forward pass, grouped by the reason.
constexpr absl::string_view kTrainingKeys =
    "attention_dropout attn_dropout attn_pdrop classifier_dropout dropout embd_dropout "
    "embd_pdrop gradient_checkpointing hidden_dropout hidden_dropout_prob initializer_range "
    "neftune_noise_alpha resid_pdrop tf_legacy_loss";
constexpr absl::string_view kGenerationKeys =
    "bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample "
    "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty "
    "forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens min_length "
    "no_repeat_ngram_size num_beam_groups num_beams num_return_sequences prefix "
    "remove_invalid_values repetition_penalty suppress_tokens temperature top_k top_p typical_p";
constexpr absl::string_view kProgramKeys =
    "_attn_implementation _attn_implementation_autoset _flash_attn_2_enabled attn_implementation "
    "cache_implementation chunk_size_feed_forward dtype is_decoder keys_to_ignore_at_inference "
    "max_sequence_length output_attentions output_hidden_states output_scores return_dict "
    "return_dict_in_generate torch_dtype torchscript transformers.js_config use_bfloat16 "
    "use_cache use_flash_attention_2 use_flash_attn";
constexpr absl::string_view kNameKeys =
    "_commit_hash _from_model_config _name_or_path auto_map custom_pipelines is_llama_config "
    "transformers_version unsloth_fixed unsloth_version";
constexpr absl::string_view kTokenizerKeys =
    "bos_token bos_token_id chat_template eos_token model_max_length pad_token pad_token_id "
    "sep_token_id tokenizer_class unk_token_id";
constexpr absl::string_view kOtherTaskKeys =
    "finetuning_task id2label label2id problem_type task_specific_params";
constexpr struct {
  const char* why;
  absl::string_view keys;
} kHarmlessKeys[] = {{"for training", kTrainingKeys},
                     {"a default of generation, which each request sets", kGenerationKeys},
                     {"affects how another program computes, not the result", kProgramKeys},
                     {"a name or a version", kNameKeys},
                     {"for the tokenizer", kTokenizerKeys},
                     {"for tasks other than text", kOtherTaskKeys}};

// Keys that change the result unless they have this value.
constexpr struct {
  const char* key;
  double neutral;
} kNeutralKeys[] = {{"embedding_multiplier", 1}, {"logit_scale", 1},
                    {"logits_scaling", 1},       {"num_experts", 0},
                    {"num_local_experts", 0},    {"partial_rotary_factor", 1},
                    {"pretraining_tp", 1},       {"residual_multiplier", 1}};

// Returns whether `allowed` has the key, as errors name it or by itself.
bool IsAllowed(const ConfigFields& config, absl::string_view key,
               absl::Span<const std::string> allowed) {
  const std::string whole = absl::StrCat(config.prefix(), key);
  return absl::c_any_of(allowed, [&](const std::string& a) { return a == key || a == whole; });
}

// Checks a key that is not read: an error unless it is known to change nothing, is empty or is
// allowed.
absl::Status CheckUnread(const ConfigFields& config, absl::string_view key,
                         absl::Span<const std::string> allowed, ModelConfig* model) {
  const char* why = nullptr;
  for (const auto& [reason, keys] : kHarmlessKeys) {
    if (HasWord(keys, key)) why = reason;
  }
  const bool says_nothing = SaysNothing(*config.object().find(std::string(key)));
  if (why == nullptr && says_nothing) why = "empty";
  if (why == nullptr && IsAllowed(config, key, allowed)) {
    why = "not known, and allowed";
    Log(LogLevel::kWarning, absl::StrCat(config.file(), ": ", config.prefix(), key,
                                         ": is not known, and ignored because it is allowed"));
  }
  if (why == nullptr) {
    return config.Wrong(key,
                        "nothing, null or false (not implemented, and it might change the result; "
                        "--allow-unknown-config ignores it)");
  }
  model->ignored_keys.push_back({absl::StrCat(config.prefix(), key), why});
  return absl::OkStatus();
}

// Checks that no key would change the result without being read or `known` here.
absl::Status CheckKeys(const ConfigFields& config, absl::string_view known,
                       absl::Span<const std::string> allowed, ModelConfig* model) {
  for (const auto& member : config.object().items()) {
    if (config.WasRead(member.key()) || HasWord(known, member.key())) continue;
    RETURN_IF_ERROR(CheckUnread(config, member.key(), allowed, model));
  }
  return absl::OkStatus();
}

// Checks the keys that allow only one value. REQUIRES: all others have been read.
absl::Status ReadOnlyKeys(const ConfigFields& config, const ModelFamily& family) {
  for (const FamilyKey& own : family.keys) {
    if (config.Has(own.key) && own.only != nullptr) {
      RETURN_IF_ERROR(config.Only(own.key, Json::parse(own.only)));
    }
  }
  for (const auto& [key, neutral] : kNeutralKeys) {
    if (!config.WasRead(key)) RETURN_IF_ERROR(config.Only(key, neutral));
  }
  return absl::OkStatus();
}

absl::StatusOr<const ModelFamily*> ReadFamily(const ConfigFields& config) {
  const auto list_of = [](const char* ModelFamily::*name) {
    return absl::StrJoin(ModelFamilies(), ", ", [&](std::string* out, const ModelFamily& family) {
      absl::StrAppend(out, family.*name);
    });
  };
  const Json* const model_type = config.Find("model_type");
  const Json* const architecture_list = config.Find("architectures");
  const auto text_of = [](const Json& value) {
    return value.is_string() ? absl::string_view(value.get_ref<const std::string&>()) : "";
  };
  const ModelFamily* found = nullptr;
  if (model_type != nullptr) {
    found = FamilyOfType(text_of(*model_type));
    if (found == nullptr) return config.Wrong("model_type", list_of(&ModelFamily::model_type));
  }
  if (architecture_list != nullptr) {
    if (!architecture_list->is_array()) return config.Wrong("architectures", "a list");
    for (const Json& architecture : *architecture_list) {
      const ModelFamily* const named = FamilyOfArchitecture(text_of(architecture));
      if (named == nullptr) {
        return config.Wrong("architectures", list_of(&ModelFamily::architecture));
      }
      if (found != nullptr && found != named) {
        return config.Wrong("architectures",
                            absl::StrCat(found->architecture, ", as model_type or the rest says"));
      }
      found = named;
    }
  }
  if (found == nullptr) return config.Wrong("model_type", list_of(&ModelFamily::model_type));
  return found;
}

// Reads an integer; `if_absent` is a family's default, or 0 if the key is required.
absl::StatusOr<int> Size(const ConfigFields& config, const char* key, int most, int if_absent = 0) {
  return config.Int(key, 1, most, if_absent > 0 ? std::optional(if_absent) : std::nullopt);
}

absl::Status ReadSizes(const ConfigFields& config, const ModelFamily& family, ModelConfig* model) {
  const ModelFamily::Defaults& defaults = family.defaults;
  ASSIGN_OR_RETURN(model->vocab_size, Size(config, "vocab_size", kMaxVocab, defaults.vocab_size));
  ASSIGN_OR_RETURN(model->hidden_size, Size(config, "hidden_size", kMaxHidden));
  ASSIGN_OR_RETURN(model->intermediate_size, Size(config, "intermediate_size", kMaxHidden));
  ASSIGN_OR_RETURN(model->num_layers, Size(config, "num_hidden_layers", kMaxLayers));
  ASSIGN_OR_RETURN(model->num_heads,
                   Size(config, "num_attention_heads", kMaxHeads, defaults.num_heads));
  const bool names_kv_heads = config.Has("num_key_value_heads");  // null: one for each query head
  ASSIGN_OR_RETURN(model->num_kv_heads,
                   Size(config, "num_key_value_heads", kMaxHeads,
                        names_kv_heads || defaults.num_kv_heads == 0 ? model->num_heads
                                                                     : defaults.num_kv_heads));
  if (model->num_heads % model->num_kv_heads != 0) {
    return config.Wrong("num_key_value_heads", absl::StrCat("a divisor of ", model->num_heads,
                                                            ", the value of num_attention_heads"));
  }
  const bool names_head_dim = config.Has("head_dim");
  const bool divides = model->hidden_size % model->num_heads == 0;
  if (config.Find("head_dim") == nullptr && (names_head_dim || defaults.head_dim == 0)) {
    if (!divides) {
      return config.Wrong("head_dim",
                          absl::StrCat("an even integer, as hidden_size ", model->hidden_size,
                                       " is not a multiple of ", model->num_heads, " heads"));
    }
    model->head_dim = model->hidden_size / model->num_heads;
  } else {
    ASSIGN_OR_RETURN(model->head_dim, config.Int("head_dim", 2, kMaxHeadDim, defaults.head_dim));
  }
  if (model->head_dim % 2 != 0 || model->head_dim > kMaxHeadDim) {
    return config.Wrong("head_dim", absl::StrCat("an even integer from 2 to ", kMaxHeadDim,
                                                 ", not ", model->head_dim));
  }
  ASSIGN_OR_RETURN(model->context_length,
                   Size(config, "max_position_embeddings", kMaxContext, defaults.context_length));
  ASSIGN_OR_RETURN(model->rms_norm_epsilon,
                   config.Number(family.epsilon_key, kMinEpsilon, 1.0, defaults.epsilon));
  return absl::OkStatus();
}

absl::Status ReadBiases(const ConfigFields& config, const ModelFamily& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(const bool attention_bias, config.Bool("attention_bias", family.has_qkv_bias));
  if (!family.may_have_attention_bias && attention_bias != family.has_qkv_bias) {
    return config.Wrong("attention_bias", absl::StrCat(family.has_qkv_bias ? "true" : "false",
                                                       " for ", family.model_type));
  }
  model->qkv_bias = attention_bias;
  model->output_bias = family.may_have_attention_bias && family.has_output_bias && attention_bias;
  ASSIGN_OR_RETURN(model->mlp_bias, config.Bool("mlp_bias", false));
  if (!family.may_have_mlp_bias && model->mlp_bias) {
    return config.Wrong("mlp_bias", absl::StrCat("false for ", family.model_type));
  }
  return absl::OkStatus();
}

// Reads a positive number if the key is among the family's own. Returns `otherwise` for other
// families and for an absent key, and `if_null` for null.
absl::StatusOr<float> Own(const ConfigFields& config, const ModelFamily& family, const char* key,
                          double otherwise, double if_null) {
  if (!family.Reads(key)) return static_cast<float>(otherwise);
  const double if_absent = config.Has(key) ? if_null : otherwise;
  ASSIGN_OR_RETURN(const double value,
                   config.Number(key, kMinMultiplier, kMaxMultiplier, if_absent));
  return static_cast<float>(value);
}

// Reads the multipliers of rows, scores and logits, and the soft caps.
absl::Status ReadScales(const ConfigFields& config, const ModelFamily& family, ModelConfig* model) {
  ASSIGN_OR_RETURN(model->embedding_scale, Own(config, family, "embedding_multiplier", 1, 1));
  if (family.scales_embeddings_by_root) {
    model->embedding_scale = std::sqrt(static_cast<float>(model->hidden_size));
  }
  ASSIGN_OR_RETURN(model->residual_scale, Own(config, family, "residual_multiplier", 1, 1));
  model->attention_scale = 1.0f / std::sqrt(static_cast<float>(model->head_dim));
  if (family.Reads("attention_multiplier")) {
    ASSIGN_OR_RETURN(model->attention_scale, Own(config, family, "attention_multiplier", 1, 1));
  }
  if (family.Reads("query_pre_attn_scalar")) {
    ASSIGN_OR_RETURN(const float scalar, Own(config, family, "query_pre_attn_scalar", 256, 256));
    model->attention_scale = 1.0f / std::sqrt(scalar);
  }
  ASSIGN_OR_RETURN(model->attention_soft_cap, Own(config, family, "attn_logit_softcapping",
                                                  family.defaults.attention_soft_cap, 0));
  ASSIGN_OR_RETURN(model->logits_soft_cap, Own(config, family, "final_logit_softcapping",
                                               family.defaults.logits_soft_cap, 0));
  ASSIGN_OR_RETURN(const float divisor, Own(config, family, "logits_scaling", 1, 1));
  const double logits = family.defaults.logit_scale;
  ASSIGN_OR_RETURN(const float factor, Own(config, family, "logit_scale", logits, logits));
  model->logits_scale = factor / divisor;
  return absl::OkStatus();
}

// Reads which layers have experts.
absl::Status ReadExpertLayers(const ConfigFields& config, ModelConfig* model) {
  ASSIGN_OR_RETURN(const int step, config.Int("decoder_sparse_step", 1, kMaxLayers, 1));
  for (int layer = 0; layer < model->num_layers; ++layer) {
    model->expert_layers[layer] = (layer + 1) % step == 0;
  }
  const Json* const list = config.Find("mlp_only_layers");
  if (list == nullptr) return absl::OkStatus();
  const std::string allowed = absl::StrCat("a list of layers from 0 to ", model->num_layers - 1);
  if (!list->is_array()) return config.Wrong("mlp_only_layers", allowed);
  for (const Json& layer : *list) {
    if (!layer.is_number_unsigned() ||
        layer.get<uint64_t>() >= static_cast<uint64_t>(model->num_layers)) {
      return config.Wrong("mlp_only_layers", allowed);
    }
    model->expert_layers[layer.get<size_t>()] = false;
  }
  return absl::OkStatus();
}

absl::Status ReadExperts(const ConfigFields& config, const ModelFamily& family,
                         ModelConfig* model) {
  if (family.expert_rule == ExpertRule::kNone) return absl::OkStatus();
  const ModelFamily::Defaults& defaults = family.defaults;
  // Newer files use the second name for the same key.
  const char* const key = family.Reads("num_experts") && config.Has("num_experts")
                              ? "num_experts"
                              : "num_local_experts";
  ASSIGN_OR_RETURN(model->num_experts, Size(config, key, kMaxExperts, defaults.num_experts));
  ASSIGN_OR_RETURN(model->experts_per_row, Size(config, "num_experts_per_tok", model->num_experts,
                                                defaults.experts_per_row));
  model->expert_layers.assign(model->num_layers, true);
  if (family.expert_rule == ExpertRule::kEveryLayer) {
    model->expert_size = model->intermediate_size;
    model->renormalises_experts = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(model->expert_size,
                   Size(config, "moe_intermediate_size", kMaxHidden, defaults.expert_size));
  ASSIGN_OR_RETURN(model->renormalises_experts, config.Bool("norm_topk_prob", false));
  return ReadExpertLayers(config, model);
}

absl::Status CheckActivation(const ConfigFields& config, const ModelFamily& family) {
  if (family.form.activation == Activation::kSilu) return config.Only("hidden_act", "silu");
  // In these families hidden_act is a leftover that the reference ignores.
  return config.Only("hidden_activation", "gelu_pytorch_tanh");
}

// Returns the window of the layers that slide, in tokens, or 0.
absl::StatusOr<int> ReadWindowSize(const ConfigFields& config, const ModelFamily& family) {
  const bool is_on_by_default =
      family.window_rule == WindowRule::kEveryLayer || family.window_rule == WindowRule::kPattern;
  ASSIGN_OR_RETURN(const bool is_on, config.Bool("use_sliding_window", is_on_by_default));
  // The reference's default if the key is absent; null means no window.
  const int if_absent = config.Has("sliding_window") ? 0 : family.defaults.window;
  switch (family.window_rule) {
    case WindowRule::kEveryLayer:
    case WindowRule::kPattern:
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
  // A leftover of another family is harmless only if use_sliding_window turns it off.
  if (config.Find("sliding_window") != nullptr && config.Find("use_sliding_window") == nullptr) {
    return config.Wrong("sliding_window", absl::StrCat("null for ", family.model_type));
  }
  return 0;
}

// Returns n, where every n-th layer sees everything, by either name of the key.
absl::StatusOr<int> ReadWindowPattern(const ConfigFields& config, const ModelFamily& family) {
  constexpr char kKey[] = "sliding_window_pattern";
  if (!family.Reads(kKey)) return family.window_pattern;
  ASSIGN_OR_RETURN(const int older,
                   config.Int("_sliding_window_pattern", 1, kMaxLayers, family.window_pattern));
  return config.Int(kKey, 1, kMaxLayers, older);
}

// layer_types names each layer's attention. It decides which layers slide if the reference reads
// it; otherwise it must not contradict the computation.
absl::Status ReadWindows(const ConfigFields& config, const ModelFamily& family,
                         ModelConfig* model) {
  ASSIGN_OR_RETURN(const int window, ReadWindowSize(config, family));
  ASSIGN_OR_RETURN(const int first_upper, config.Int("max_window_layers", 0, INT_MAX, 28));
  ASSIGN_OR_RETURN(const int pattern, ReadWindowPattern(config, family));
  const int first = family.window_rule == WindowRule::kUpperLayers ? first_upper : 0;
  const bool has_pattern = family.window_rule == WindowRule::kPattern;
  model->windows.assign(model->num_layers, 0);
  for (int layer = first; layer < model->num_layers; ++layer) {
    if (!has_pattern || (layer + 1) % pattern != 0) model->windows[layer] = window;
  }

  const Json* const types = config.Find("layer_types");
  if (types == nullptr) return absl::OkStatus();
  if (!types->is_array() || types->size() != static_cast<size_t>(model->num_layers)) {
    return config.Wrong("layer_types", absl::StrCat("a list of ", model->num_layers, " layers"));
  }
  const bool decides =
      window > 0 && (has_pattern || family.window_rule == WindowRule::kUpperLayers);
  for (int layer = 0; layer < model->num_layers; ++layer) {
    const Json& type = (*types)[layer];
    const bool slides = IsText(type, "sliding_attention");
    if (!slides && !IsText(type, "full_attention")) {
      return config.Wrong("layer_types", "full_attention and sliding_attention");
    }
    if (decides) model->windows[layer] = slides ? window : 0;
    if (slides != (model->windows[layer] > 0)) {
      return config.Wrong("layer_types",
                          absl::StrCat(slides ? "full" : "sliding", "_attention for layer ", layer,
                                       ", as the other keys say"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> ReadEosIds(const ConfigFields& fields, int vocab_size) {
  const std::string allowed =
      absl::StrCat("an id from 0 to ", vocab_size - 1, ", a list of them, or null");
  std::vector<TokenId> ids;
  const Json* const value = fields.Find("eos_token_id");
  if (value == nullptr) return ids;
  const absl::Span<const Json> list =
      value->is_array() ? absl::MakeConstSpan(value->get_ref<const Json::array_t&>())
                        : absl::MakeConstSpan(value, 1);
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return fields.Wrong("eos_token_id", allowed);
    }
    const TokenId token = id.get<TokenId>();
    if (!absl::c_linear_search(ids, token)) ids.push_back(token);
  }
  return ids;
}

// Reads the mask of a parallel draft, as AMD's PARD writes it.
absl::Status ReadMaskToken(const ConfigFields& config, ModelConfig* model) {
  constexpr char kToken[] = "pard_token";
  constexpr char kType[] = "spd_type";
  const bool has_type = config.Find(kType) != nullptr;
  if (has_type) RETURN_IF_ERROR(config.Only(kType, "pard"));
  if (!has_type && config.Find(kToken) == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(model->mask_token, config.Int(kToken, 0, model->vocab_size - 1));
  return absl::OkStatus();
}

// The part of a configuration that is read, and its family.
struct TextConfig {
  ConfigFields fields;
  const ModelFamily* family;
  bool has_other_parts = false;
};

absl::StatusOr<TextConfig> FindText(const ConfigFields& config) {
  ASSIGN_OR_RETURN(const ModelFamily* const head, HeadFamilyOf(config));
  if (head != nullptr) {
    ASSIGN_OR_RETURN(const ConfigFields layer, HeadLayerOf(config));
    return TextConfig{layer, head};
  }
  ASSIGN_OR_RETURN(const ModelFamily* const family, ReadFamily(config));
  if (family->text_family == nullptr) return TextConfig{config, family};
  ASSIGN_OR_RETURN(const ConfigFields fields, config.Object("text_config"));
  const Json* const model_type = fields.Find("model_type");
  if (model_type != nullptr && !IsText(*model_type, family->text_family)) {
    return fields.Wrong("model_type", absl::StrCat(family->text_family, " in a model of type ",
                                                   family->model_type));
  }
  return TextConfig{fields, FamilyOfType(family->text_family), /*has_other_parts=*/true};
}

absl::Status ReadEnds(const ConfigFields& outer, const ConfigFields& text,
                      std::optional<absl::string_view> generation_text,
                      const std::string& generation_file, ModelConfig* model) {
  const bool is_outer = outer.Find("eos_token_id") != nullptr;
  ASSIGN_OR_RETURN(model->eos_token_ids, ReadEosIds(is_outer ? outer : text, model->vocab_size));
  if (!generation_text.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SortedJson generation, ParseJsonObject(*generation_text, generation_file));
  const ConfigFields fields(generation, generation_file);
  if (fields.Find("eos_token_id") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(model->eos_token_ids, ReadEosIds(fields, model->vocab_size));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text, const std::string& file,
                                             std::optional<absl::string_view> generation_text,
                                             const std::string& generation_file,
                                             absl::Span<const std::string> allowed_keys) {
  ASSIGN_OR_RETURN(const SortedJson parsed, ParseJsonObject(text, file));
  const ConfigFields whole(parsed, file);
  ASSIGN_OR_RETURN(const TextConfig found, FindText(whole));
  const ConfigFields& config = found.fields;
  const ModelFamily& family = *found.family;
  ModelConfig model = family.NewConfig();
  model.has_other_parts = found.has_other_parts;
  RETURN_IF_ERROR(ReadSizes(config, family, &model));
  RETURN_IF_ERROR(CheckActivation(config, family));
  RETURN_IF_ERROR(ReadBiases(config, family, &model));
  RETURN_IF_ERROR(ReadScales(config, family, &model));
  RETURN_IF_ERROR(ReadExperts(config, family, &model));
  RETURN_IF_ERROR(ReadWindows(config, family, &model));
  RETURN_IF_ERROR(ReadRope(config, family, &model));
  ASSIGN_OR_RETURN(const bool ties,
                   whole.Bool("tie_word_embeddings", family.defaults.ties_embeddings));
  ASSIGN_OR_RETURN(model.tied_embeddings, config.Bool("tie_word_embeddings", ties));
  if (model.is_draft_head()) {
    RETURN_IF_ERROR(ReadHead(whole, &model));
  } else {
    RETURN_IF_ERROR(ReadMaskToken(config, &model));
  }
  RETURN_IF_ERROR(ParseQuantization(parsed, file).status());
  RETURN_IF_ERROR(ReadOnlyKeys(config, family));
  if (!config.prefix().empty()) {
    RETURN_IF_ERROR(CheckKeys(whole, model.has_other_parts ? kOuterKeys : kSpeculatorsKeys,
                              allowed_keys, &model));
  }
  RETURN_IF_ERROR(CheckKeys(config, kKnownKeys, allowed_keys, &model));
  RETURN_IF_ERROR(ReadEnds(whole, config, generation_text, generation_file, &model));
  return model;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path,
                                            absl::Span<const std::string> allowed_keys) {
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
    return ParseModelConfig(text, file, std::nullopt, generation_file, allowed_keys);
  }
  RETURN_IF_ERROR(generation.status());
  return ParseModelConfig(text, file, *generation, generation_file, allowed_keys);
}

}  // namespace tandem
