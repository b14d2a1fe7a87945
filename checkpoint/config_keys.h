// The keys of config.json by what they do to the result; model_config.cc alone includes this.
#ifndef TANDEM_CHECKPOINT_CONFIG_KEYS_H_
#define TANDEM_CHECKPOINT_CONFIG_KEYS_H_

namespace tandem {
namespace {

// Keys that model_config.cc reads.
constexpr const char* kReadKeys[] = {"architectures",
                                     "attention_bias",
                                     "compression_config",
                                     "eos_token_id",
                                     "head_dim",
                                     "hidden_act",
                                     "hidden_size",
                                     "intermediate_size",
                                     "layer_types",
                                     "max_position_embeddings",
                                     "max_window_layers",
                                     "mlp_bias",
                                     "model_type",
                                     "num_attention_heads",
                                     "num_hidden_layers",
                                     "num_key_value_heads",
                                     "quantization_config",
                                     "rms_norm_eps",
                                     "rope_parameters",
                                     "rope_scaling",
                                     "rope_theta",
                                     "sliding_window",
                                     "tie_word_embeddings",
                                     "use_sliding_window",
                                     "vocab_size"};

// Keys beside text_config in a model with other parts, which are not read.
constexpr const char* kOuterKeys[] = {"architectures",
                                      "boi_token_index",
                                      "eoi_token_index",
                                      "eos_token_id",
                                      "image_token_id",
                                      "image_token_index",
                                      "mm_tokens_per_image",
                                      "model_type",
                                      "multimodal_projector_bias",
                                      "projector_hidden_act",
                                      "quantization_config",
                                      "spatial_merge_size",
                                      "text_config",
                                      "tie_word_embeddings",
                                      "video_token_id",
                                      "vision_config",
                                      "vision_end_token_id",
                                      "vision_feature_layer",
                                      "vision_feature_select_strategy",
                                      "vision_start_token_id"};

// Keys that do not change what a forward pass computes, and why.
constexpr char kTraining[] = "of training";
constexpr char kGeneration[] = "a default of generation, which requests choose";
constexpr char kProgram[] = "how another program computes, not what";
constexpr char kName[] = "a name or a version";
constexpr char kTokenizer[] = "the tokenizer's";
constexpr char kOtherTask[] = "of tasks other than text";
constexpr struct {
  const char* key;
  const char* why;
} kHarmlessKeys[] = {{"_attn_implementation", kProgram},
                     {"_attn_implementation_autoset", kProgram},
                     {"_commit_hash", kName},
                     {"_flash_attn_2_enabled", kProgram},
                     {"_from_model_config", kName},
                     {"_name_or_path", kName},
                     {"attention_dropout", kTraining},
                     {"attn_dropout", kTraining},
                     {"attn_implementation", kProgram},
                     {"attn_pdrop", kTraining},
                     {"auto_map", kName},
                     {"bad_words_ids", kGeneration},
                     {"begin_suppress_tokens", kGeneration},
                     {"bos_token", kTokenizer},
                     {"bos_token_id", kTokenizer},
                     {"cache_implementation", kProgram},
                     {"chat_template", kTokenizer},
                     {"chunk_size_feed_forward", kProgram},
                     {"classifier_dropout", kTraining},
                     {"custom_pipelines", kName},
                     {"decoder_start_token_id", kGeneration},
                     {"diversity_penalty", kGeneration},
                     {"do_sample", kGeneration},
                     {"dropout", kTraining},
                     {"dtype", kProgram},
                     {"early_stopping", kGeneration},
                     {"embd_dropout", kTraining},
                     {"embd_pdrop", kTraining},
                     {"encoder_no_repeat_ngram_size", kGeneration},
                     {"eos_token", kTokenizer},
                     {"exponential_decay_length_penalty", kGeneration},
                     {"finetuning_task", kOtherTask},
                     {"forced_bos_token_id", kGeneration},
                     {"forced_eos_token_id", kGeneration},
                     {"gradient_checkpointing", kTraining},
                     {"hidden_dropout", kTraining},
                     {"hidden_dropout_prob", kTraining},
                     {"id2label", kOtherTask},
                     {"initializer_range", kTraining},
                     {"is_decoder", kProgram},
                     {"is_llama_config", kName},
                     {"keys_to_ignore_at_inference", kProgram},
                     {"label2id", kOtherTask},
                     {"length_penalty", kGeneration},
                     {"max_length", kGeneration},
                     {"max_new_tokens", kGeneration},
                     {"min_length", kGeneration},
                     {"model_max_length", kTokenizer},
                     {"max_sequence_length", kProgram},
                     {"neftune_noise_alpha", kTraining},
                     {"no_repeat_ngram_size", kGeneration},
                     {"num_beam_groups", kGeneration},
                     {"num_beams", kGeneration},
                     {"num_return_sequences", kGeneration},
                     {"output_attentions", kProgram},
                     {"output_hidden_states", kProgram},
                     {"output_scores", kProgram},
                     {"pad_token", kTokenizer},
                     {"pad_token_id", kTokenizer},
                     {"prefix", kGeneration},
                     {"problem_type", kOtherTask},
                     {"remove_invalid_values", kGeneration},
                     {"repetition_penalty", kGeneration},
                     {"resid_pdrop", kTraining},
                     {"return_dict", kProgram},
                     {"return_dict_in_generate", kProgram},
                     {"sep_token_id", kTokenizer},
                     {"suppress_tokens", kGeneration},
                     {"task_specific_params", kOtherTask},
                     {"temperature", kGeneration},
                     {"tf_legacy_loss", kTraining},
                     {"tokenizer_class", kTokenizer},
                     {"top_k", kGeneration},
                     {"top_p", kGeneration},
                     {"torch_dtype", kProgram},
                     {"torchscript", kProgram},
                     {"transformers.js_config", kProgram},
                     {"transformers_version", kName},
                     {"typical_p", kGeneration},
                     {"unk_token_id", kTokenizer},
                     {"unsloth_fixed", kName},
                     {"unsloth_version", kName},
                     {"use_bfloat16", kProgram},
                     {"use_cache", kProgram},
                     {"use_flash_attention_2", kProgram},
                     {"use_flash_attn", kProgram}};

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
