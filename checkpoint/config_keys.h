// The keys of config.json by what they do to the result; model_config.cc alone includes this.
#ifndef TANDEM_CHECKPOINT_CONFIG_KEYS_H_
#define TANDEM_CHECKPOINT_CONFIG_KEYS_H_

#include "absl/types/span.h"

namespace tandem {
namespace {

// Keys of every family that are known whether model_config.cc reads them or not.
constexpr const char* kKnownKeys[] = {"architectures", "compression_config",  "eos_token_id",
                                      "hidden_act",    "quantization_config", "rms_norm_eps"};

// Keys beside text_config in a model with other parts, which are not read.
constexpr const char* kOuterKeys[] = {"boi_token_index",
                                      "eos_token_id",
                                      "eoi_token_index",
                                      "image_token_id",
                                      "image_token_index",
                                      "mm_tokens_per_image",
                                      "multimodal_projector_bias",
                                      "projector_hidden_act",
                                      "quantization_config",
                                      "spatial_merge_size",
                                      "video_token_id",
                                      "vision_config",
                                      "vision_end_token_id",
                                      "vision_feature_layer",
                                      "vision_feature_select_strategy",
                                      "vision_start_token_id"};

// Keys next to a speculators head's layer that are not read: how another program drafts and
// verifies with it, and its trainer's.
constexpr const char* kSpeculatorsKeys[] = {
    "architectures", "compression_config",  "embed_requires_grad", "has_no_defaults_at_init",
    "model_type",    "quantization_config", "speculators_config",  "speculators_version"};

// Keys that do not change what a forward pass computes, by the reason why.
constexpr const char* kTrainingKeys[] = {
    "attention_dropout", "attn_dropout",        "attn_pdrop",        "classifier_dropout",
    "dropout",           "embd_dropout",        "embd_pdrop",        "gradient_checkpointing",
    "hidden_dropout",    "hidden_dropout_prob", "initializer_range", "neftune_noise_alpha",
    "resid_pdrop",       "tf_legacy_loss"};
constexpr const char* kGenerationKeys[] = {"bad_words_ids",
                                           "begin_suppress_tokens",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "exponential_decay_length_penalty",
                                           "forced_bos_token_id",
                                           "forced_eos_token_id",
                                           "length_penalty",
                                           "max_length",
                                           "max_new_tokens",
                                           "min_length",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_return_sequences",
                                           "prefix",
                                           "remove_invalid_values",
                                           "repetition_penalty",
                                           "suppress_tokens",
                                           "temperature",
                                           "top_k",
                                           "top_p",
                                           "typical_p"};
constexpr const char* kProgramKeys[] = {"_attn_implementation",
                                        "_attn_implementation_autoset",
                                        "_flash_attn_2_enabled",
                                        "attn_implementation",
                                        "cache_implementation",
                                        "chunk_size_feed_forward",
                                        "dtype",
                                        "is_decoder",
                                        "keys_to_ignore_at_inference",
                                        "max_sequence_length",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_scores",
                                        "return_dict",
                                        "return_dict_in_generate",
                                        "torch_dtype",
                                        "torchscript",
                                        "transformers.js_config",
                                        "use_bfloat16",
                                        "use_cache",
                                        "use_flash_attention_2",
                                        "use_flash_attn"};
constexpr const char* kNameKeys[] = {
    "_commit_hash",     "_from_model_config", "_name_or_path",        "auto_map",
    "custom_pipelines", "is_llama_config",    "transformers_version", "unsloth_fixed",
    "unsloth_version"};
constexpr const char* kTokenizerKeys[] = {
    "bos_token", "bos_token_id", "chat_template", "eos_token",       "model_max_length",
    "pad_token", "pad_token_id", "sep_token_id",  "tokenizer_class", "unk_token_id"};
constexpr const char* kOtherTaskKeys[] = {"finetuning_task", "id2label", "label2id", "problem_type",
                                          "task_specific_params"};
constexpr struct {
  const char* why;
  absl::Span<const char* const> keys;
} kHarmlessKeys[] = {{"of training", kTrainingKeys},
                     {"a default of generation, which requests choose", kGenerationKeys},
                     {"how another program computes, not what", kProgramKeys},
                     {"a name or a version", kNameKeys},
                     {"the tokenizer's", kTokenizerKeys},
                     {"of tasks other than text", kOtherTaskKeys}};

// Keys that change the result unless they have this value.
constexpr struct {
  const char* key;
  double neutral;
} kNeutralKeys[] = {{"embedding_multiplier", 1}, {"logit_scale", 1},
                    {"logits_scaling", 1},       {"num_experts", 0},
                    {"num_local_experts", 0},    {"partial_rotary_factor", 1},
                    {"pretraining_tp", 1},       {"residual_multiplier", 1}};

}  // namespace
}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_CONFIG_KEYS_H_
