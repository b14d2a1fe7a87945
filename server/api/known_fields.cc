#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json/json_text.h"
#include "server/api/field_groups.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

constexpr char kLengthFields[] = "max_completion_tokens max_tokens max_output_tokens";
constexpr char kConversationFields[] = "messages input prompt";
constexpr char kFormFields[] = "response_format text.format";
constexpr char kThinkingField[] = "chat_template_kwargs.enable_thinking";
constexpr char kLimitField[] = "max_thinking_tokens";
constexpr char kPlainTextFormat[] = R"({"format": {"type": "text"}}, {})";

// By subject. A parameter that only shapes another one, which is refused unless it is off, has no
// effect.
constexpr KnownField kKnownFields[] = {
    // ---- Of this server's endpoints ----
    {"model", kNoEffect},
    {"prompt", kOnPrompt, "", kConversationFields},
    {"messages", kOnPrompt, "", kConversationFields},
    {"input", kOnPrompt, "", kConversationFields},
    {"instructions", kOnPrompt, "", kConversationFields},
    {"suffix", kOnPrompt},
    {"tokens", kOnPrompt, "", "prompt"},
    {"add_special_tokens", kOnPrompt, "false"},
    {"special", kOnPrompt, R"("parse")"},
    {"truncate_prompt_tokens", kOnPrompt},
    {"chat_template_kwargs", kOnPrompt, "{}"},
    {"reasoning_effort", kOnPrompt, "", "reasoning.effort"},
    {"reasoning", kOnPrompt, "{}", "reasoning_effort"},
    {"add_generation_prompt", kOnPrompt, "true"},
    {"continue_final_message", kOnPrompt, "false"},
    {"tools", kOnPrompt},
    {"tool_choice", kOnPrompt | kOnAnswer, R"("auto", "none")"},
    {"parallel_tool_calls", kOnAnswer, "true, false"},
    {"max_tokens", kOnAnswer, "", kLengthFields},
    {"max_completion_tokens", kOnAnswer, "", kLengthFields},
    {"max_output_tokens", kOnAnswer, "", kLengthFields},
    {"min_tokens", kOnAnswer, "0"},
    {"n", kOnAnswer, "1"},
    {"best_of", kOnAnswer, "1"},
    {"seed", kOnAnswer},
    {"temperature", kOnAnswer},
    {"top_p", kOnAnswer},
    {"top_k", kOnAnswer},
    {"min_p", kOnAnswer},
    {"repetition_penalty", kOnAnswer},
    {"frequency_penalty", kOnAnswer},
    {"presence_penalty", kOnAnswer},
    {"logit_bias", kOnAnswer},
    {"stop", kOnAnswer},
    {"stop_token_ids", kOnAnswer},
    {"ignore_eos", kOnAnswer},
    {"include_stop_str_in_output", kOnAnswer},
    {"skip_special_tokens", kOnAnswer | kOnDecoding, "false"},
    {"echo", kOnAnswer, "false"},
    {"return_tokens_as_token_ids", kOnAnswer, "false"},
    {"logprobs", kOnAnswer, "false"},
    {"top_logprobs", kOnAnswer, "0", "logprobs"},
    {"prompt_logprobs", kOnAnswer},
    {"stream", kOnAnswer},
    {"stream_options", kOnAnswer},
    {"speculation", kOnAnswer},
    {"drafter", kOnAnswer, "", "speculation.drafter"},
    {"draft_tokens", kOnAnswer, "", "speculation.draft_tokens"},
    {"verifier", kOnAnswer, "", "speculation.verifier"},
    {"prediction", kOnAnswer},
    {"cache_salt", kOnAnswer},
    {"kv_transfer_params", kOnAnswer, "{}"},
    {"response_format", kOnAnswer, R"({"type": "text"})", kFormFields},
    {"text", kOnAnswer, kPlainTextFormat, kFormFields},
    {"structured_outputs", kOnAnswer},
    {"guided_json", kOnAnswer},
    {"guided_regex", kOnAnswer},
    {"guided_choice", kOnAnswer},
    {"guided_grammar", kOnAnswer},
    {"choice_law", kOnAnswer, R"("masked")"},
    {"json_schema", kOnAnswer},
    {"regex", kOnAnswer},
    {"ebnf", kOnAnswer},
    {"max_thinking_tokens", kOnAnswer},
    {"separate_reasoning", kOnAnswer, "true"},
    {"include_reasoning", kOnAnswer, "true"},
    {"stream_reasoning", kOnAnswer, "true"},
    {"include", kOnAnswer},
    {"previous_response_id", kOnPrompt, "", kConversationFields},
    {"return_token_strs", kOnAnswer, "false"},

    // ---- OpenAI's API ----
    {"functions", kOnPrompt, "", "tools"},
    {"function_call", kOnPrompt | kOnAnswer, R"("auto", "none")", "tool_choice"},
    {"modalities", kOnAnswer, R"(["text"])"},
    {"audio", kOnAnswer},
    {"verbosity", kOnAnswer, R"("medium")"},
    {"web_search_options", kOnAnswer},
    {"background", kOnAnswer, "false"},
    {"conversation", kOnPrompt, "", kConversationFields},
    {"context_management", kOnPrompt},
    {"truncation", kOnPrompt, R"("disabled")", "truncate_prompt_tokens"},
    {"max_tool_calls", kNoEffect},
    {"metadata", kNoEffect},
    {"prompt_cache_key", kNoEffect},
    {"prompt_cache_retention", kNoEffect},
    {"safety_identifier", kNoEffect},
    {"service_tier", kNoEffect},
    {"store", kNoEffect},
    {"user", kNoEffect},

    // ---- vLLM ----
    {"allowed_token_ids", kOnAnswer},
    {"bad_words", kOnAnswer},
    {"chat_template", kOnPrompt},
    {"documents", kOnPrompt},
    {"early_stopping", kOnAnswer, "false"},
    {"enable_response_messages", kOnAnswer, "false"},
    {"guided_decoding_backend", kNoEffect},
    {"guided_json_object", kOnAnswer, "false", kFormFields},
    {"guided_whitespace_pattern", kOnAnswer},
    {"length_penalty", kOnAnswer, "1"},
    {"logits_processors", kOnAnswer},
    {"logprob_token_ids", kOnAnswer},
    {"previous_input_messages", kOnPrompt, "", kConversationFields},
    {"previous_response", kOnPrompt, "", kConversationFields},
    {"prompt_embeds", kOnPrompt},
    {"repetition_detection", kOnAnswer},
    {"return_prompt_text", kOnAnswer, "false"},
    {"return_token_offsets", kOnAnswer, "false"},
    {"structural_tag", kOnAnswer},
    {"thinking_token_budget", kOnAnswer, "-1", kLimitField},
    {"token_ids", kOnPrompt, "", "tokens prompt"},
    {"truncation_side", kOnPrompt, R"("left")"},
    {"use_beam_search", kOnAnswer, "false"},
    {"vllm_xargs", kOnAnswer, "{}"},
    {"watermarking", kOnAnswer, "false"},
    {"data_parallel_rank", kNoEffect},  // this and the next ones: where a request runs
    {"disagg_prefill_dp_rank", kNoEffect},
    {"routed_dp_rank", kNoEffect},
    {"ec_transfer_params", kNoEffect},  // this and the next ones: media, which are refused
    {"images_config", kNoEffect},
    {"max_dynamic_patch", kNoEffect},
    {"media_io_kwargs", kNoEffect},
    {"min_dynamic_patch", kNoEffect},
    {"mm_processor_kwargs", kNoEffect},
    {"return_mm_kwargs", kNoEffect},
    {"use_audio_in_video", kNoEffect},
    {"priority", kNoEffect},
    {"request_id", kNoEffect},
    {"return_token_ids", kNoEffect},  // answers always have them
    {"routed_experts_prompt_start", kNoEffect},
    {"session_id", kNoEffect},
    {"spaces_between_special_tokens", kNoEffect},
    {"stream_interval", kNoEffect},

    // ---- SGLang ----
    {"bootstrap_host", kOnAnswer, "", "kv_transfer_params"},
    {"bootstrap_port", kOnAnswer, "", "kv_transfer_params"},
    {"bootstrap_room", kOnAnswer, "", "kv_transfer_params"},
    {"custom_logit_processor", kOnAnswer},
    {"custom_params", kOnAnswer, "{}"},
    {"extra_key", kOnAnswer, "", "cache_salt"},
    {"input_ids", kOnPrompt, "", "prompt"},
    {"logprob_start_len", kOnAnswer, "-1"},
    {"lora_path", kOnAnswer},
    {"max_new_tokens", kOnAnswer, "", kLengthFields},
    {"min_new_tokens", kOnAnswer, "0", "min_tokens"},
    {"ngram_corpus_id", kOnAnswer},
    {"no_stop_trim", kOnAnswer, "false", "include_stop_str_in_output"},
    {"return_cached_tokens_details", kOnAnswer, "false"},
    {"return_hidden_states", kOnAnswer, "false"},
    {"return_logprob", kOnAnswer, "false", "logprobs"},
    {"return_meta_info", kOnAnswer, "false"},
    {"return_prompt_token_ids", kOnAnswer, "false"},
    {"return_routed_experts", kOnAnswer, "false"},
    {"sampling_params", kOnAnswer, "{}"},
    {"sampling_seed", kOnAnswer, "", "seed"},
    {"session_params", kOnAnswer, "{}"},
    {"stop_regex", kOnAnswer},
    {"task", kOnPrompt},
    {"token_ids_logprob", kOnAnswer},
    {"top_logprobs_num", kOnAnswer, "0", "top_logprobs logprobs"},
    {"custom_labels", kNoEffect},
    {"log_metrics", kNoEffect},
    {"return_text_in_logprobs", kNoEffect},
    {"rid", kNoEffect},
    {"routed_experts_start_len", kNoEffect},

    // ---- llama.cpp ----
    {"adaptive_target", kOnAnswer, "-1"},
    {"add_special", kOnPrompt, "true", "add_special_tokens"},
    {"cache_prompt", kOnAnswer, "true", "cache_salt"},
    {"chat_format", kOnAnswer, "0"},
    {"chat_parser", kOnAnswer},
    {"content", kOnPrompt, "", "prompt"},
    {"dry_multiplier", kOnAnswer, "0"},
    {"dynatemp_range", kOnAnswer, "0"},
    {"grammar", kOnAnswer, "", "guided_grammar"},
    {"grammar_lazy", kOnAnswer, "false"},
    {"grammar_triggers", kOnAnswer},
    {"input_extra", kOnPrompt},
    {"input_prefix", kOnPrompt, "", "prompt"},
    {"input_suffix", kOnPrompt, "", "suffix"},
    {"lora", kOnAnswer},
    {"min_keep", kOnAnswer, "0"},
    {"mirostat", kOnAnswer, "0"},
    {"n_cache_reuse", kOnAnswer, "0"},
    {"n_cmpl", kOnAnswer, "1", "n"},
    {"n_discard", kOnAnswer, "0"},
    {"n_indent", kOnAnswer, "0"},
    {"n_keep", kOnPrompt, "0"},
    {"n_predict", kOnAnswer, "-1", kLengthFields},
    {"n_probs", kOnAnswer, "0", "top_logprobs logprobs"},
    {"parse_special", kOnPrompt, "true", "special"},
    {"parse_tool_calls", kOnAnswer, "true"},
    {"penalize_nl", kOnAnswer, "false"},
    {"post_sampling_probs", kOnAnswer, "false"},
    {"preserved_tokens", kOnAnswer},
    {"reasoning_budget", kOnAnswer, "-1", kLimitField},
    {"reasoning_budget_tokens", kOnAnswer, "-1", kLimitField},
    {"reasoning_format", kOnAnswer, R"("auto", "deepseek")", "separate_reasoning"},
    {"repeat_last_n", kOnAnswer, "-1, 64"},
    {"repeat_penalty", kOnAnswer, "1", "repetition_penalty"},
    {"response_fields", kOnAnswer},
    {"samplers", kOnAnswer},
    {"speculative.n_max", kOnAnswer, "", "speculation.draft_tokens"},
    {"speculative.n_min", kOnAnswer, "0", "speculation.draft_tokens"},
    {"speculative.p_min", kOnAnswer, "", "speculation.draft_tokens"},
    {"speculative.type", kOnAnswer, "", "speculation.drafter"},
    {"system_prompt", kOnPrompt, "", kConversationFields},
    {"t_max_predict_ms", kOnAnswer, "-1, 0"},
    {"t_max_prompt_ms", kOnAnswer, "-1, 0"},
    {"thinking", kOnAnswer, "", kThinkingField},
    {"thinking_budget_tokens", kOnAnswer, "-1", kLimitField},
    {"thinking_forced_open", kOnAnswer, "false"},
    {"top_n_sigma", kOnAnswer, "-1, 0"},
    {"typical_p", kOnAnswer, "1"},
    {"with_pieces", kOnPrompt, "false", "return_token_strs"},
    {"xtc_probability", kOnAnswer, "0"},
    {"adaptive_decay", kNoEffect},
    {"backend_sampling", kNoEffect},
    {"dry_allowed_length", kNoEffect},
    {"dry_base", kNoEffect},
    {"dry_penalty_last_n", kNoEffect},
    {"dry_sequence_breakers", kNoEffect},
    {"dynatemp_exponent", kNoEffect},
    {"id_slot", kNoEffect},
    {"mirostat_eta", kNoEffect},
    {"mirostat_tau", kNoEffect},
    {"return_progress", kNoEffect},
    {"return_tokens", kNoEffect},  // answers always have them
    {"timings_per_token", kNoEffect},
    {"xtc_threshold", kNoEffect},

    // ---- Ollama ----
    {"context", kOnPrompt, "", kConversationFields},
    {"format", kOnAnswer, "", kFormFields},
    {"images", kOnPrompt},
    {"num_ctx", kOnAnswer},
    {"num_keep", kOnPrompt, "0"},
    {"num_predict", kOnAnswer, "-1", kLengthFields},
    {"options", kOnPrompt | kOnAnswer, "{}"},
    {"penalize_newline", kOnAnswer, "false"},
    {"raw", kOnPrompt, "false"},
    {"shift", kOnAnswer, "false"},
    {"system", kOnPrompt, "", kConversationFields},
    {"template", kOnPrompt},
    {"tfs_z", kOnAnswer, "1"},
    {"think", kOnPrompt | kOnAnswer, "", kThinkingField},
    {"truncate", kOnPrompt, "false", "truncate_prompt_tokens"},
    {"keep_alive", kNoEffect},

    // ---- Variables of chat templates, outside chat_template_kwargs ----
    {"enable_thinking", kOnPrompt, "", kThinkingField},
    {"thinking_budget", kOnPrompt | kOnAnswer, "-1", kLimitField},
};

// Returns the first of the fields `names` that the endpoint reads, or an empty text.
absl::string_view FirstKnown(absl::string_view names, const RequestFields& fields) {
  for (const absl::string_view name : absl::StrSplit(names, ' ', absl::SkipEmpty())) {
    if (fields.IsKnown(name.substr(0, name.find('.')))) return name;
  }
  return "";
}

}  // namespace

absl::Span<const KnownField> KnownFields() { return kKnownFields; }

void RefuseFieldsOfOthers(unsigned effects, RequestFields* fields) {
  for (const std::string& name : fields->UnknownMembers()) {
    for (const KnownField& field : kKnownFields) {
      if (field.name != name) continue;
      const absl::string_view instead = FirstKnown(field.instead, *fields);
      const JsonValue* value = fields->Find(name);
      const bool says_nothing =
          value == nullptr || IsText(*value, "") || *value == JsonValue::array();
      if (says_nothing || (field.effect & effects) == 0) continue;
      const JsonValue neutral = JsonValue::parse(absl::StrCat("[", field.neutral, "]"));
      fields->AllowOnly(name, neutral.get_ref<const JsonValue::array_t&>(), instead);
    }
  }
}

}  // namespace tandem
