// Parses any bytes as the body of every POST, mostly with known fields that have values of wrong
// types and sizes. Each result is either an error that can be sent and names a field, or a request
// whose numbers are within their bounds.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/check.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/api/token_endpoints.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

constexpr int kContext = 64;

// Every field that any endpoint reads.
const std::vector<SortedJson>& Samples() {
  static const auto& samples = *new std::vector<SortedJson>(ParseAll({
      R"({"model": "fuzz", "prompt": "ab", "max_tokens": 5, "n": 2, "best_of": 2, "echo": true,
          "seed": 7, "user": "u", "metadata": {}, "suffix": "", "stream": true,
          "stream_options": {"include_usage": true, "include_token_texts": true,
                             "prompt_progress": true,
                             "include_obfuscation": false}})",
      R"({"prompt": ["a", "b"], "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1,
          "repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": -0.5,
          "min_tokens": 1, "logit_bias": {"0": -100, "1": 1.5}, "stop": ["b", "ab"],
          "stop_token_ids": [2], "ignore_eos": false, "max_tokens": 4})",
      R"({"prompt": [[0, 1], [2]],
          "speculation": {"draft_tokens": 2, "drafter": "model", "verifier": "block"}})",
      R"({"prompt": [0, 1, 2], "echo": true, "logprobs": 3,
          "speculation": {"draft_tokens": "auto"}})",
      R"({"messages": [{"role": "system", "content": "a"}, {"role": "user", "content":
            [{"type": "text", "text": "b"}]}, {"role": "assistant", "content": "ab"},
            {"role": "user", "content": "a", "name": null}],
          "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 2, "stop": "b"})",
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [], "tool_choice": "none",
          "parallel_tool_calls": true, "functions": [], "function_call": "none",
          "response_format": {"type": "text"}, "modalities": ["text"], "audio": null,
          "prediction": null, "reasoning_effort": "none", "web_search_options": null,
          "store": false, "service_tier": "auto", "max_tokens": 3})",
      R"({"prompt": "ab", "echo": true, "max_tokens": 0})",
      R"({"prompt": "ab", "best_of": 3, "n": 2, "prompt_logprobs": 2, "truncate_prompt_tokens": 1,
          "include_stop_str_in_output": true, "skip_special_tokens": false, "max_tokens": -1,
          "add_special_tokens": false, "no_stop_trim": false,
          "speculation": {"drafter": "ngram"}})",
      R"({"messages": [{"role": "user", "content": "a", "name": "n"}, {"role": "assistant",
            "content": "b", "tool_calls": []}], "echo": true, "chat_template_kwargs": {},
          "reasoning_effort": "low", "add_generation_prompt": true,
          "continue_final_message": false, "max_completion_tokens": -1, "unknown": [1]})",
      R"({"messages": [{"role": "user", "content": "a"}], "return_token_strs": false})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
            "reasoning_content": "a", "tool_calls": [{"id": "1", "type": "function",
              "function": {"name": "f", "arguments": "{\"s\": 1}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "b"}],
          "tools": [{"type": "function", "function": {"name": "f", "description": "d",
            "strict": true, "parameters": {"type": "object", "properties": {
              "s": {"type": "string", "maxLength": 3}, "n": {"$ref": "#/$defs/n"},
              "e": {"enum": ["a", 1]}, "o": {"anyOf": [{"type": "null"}, {"const": 2}]}},
              "$defs": {"n": {"type": "integer"}}, "required": ["s"]}}}],
          "tool_choice": "required", "parallel_tool_calls": false, "separate_reasoning": true,
          "include_reasoning": false, "stream_reasoning": false, "max_tokens": 4})",
      R"({"messages": [{"role": "assistant", "content": "a"}], "echo": true, "max_tokens": 2,
          "continue_final_message": true, "guided_json": {"type": "object"}})",
      R"({"input": "a", "instructions": "b", "max_output_tokens": 3, "store": true, "include": [],
          "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}})",
      R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "message", "id": "i", "role": "assistant", "content": "b"}],
          "truncation": "disabled", "previous_response_id": null})",
      R"({"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}],
            "content": [{"type": "reasoning_text", "text": "b"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "a"}],
          "tools": [{"type": "function", "name": "f", "strict": true,
            "parameters": {"additionalProperties": {"type": "string", "pattern": "a"}}}],
          "tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": 2,
          "include": ["reasoning.encrypted_content"]})",
      R"({"model": "fuzz", "prompt": "a", "add_special_tokens": true, "special": "plain"})",
      R"({"tokens": [0, 1, 3], "model": null})"}));
  return samples;
}

ServedModel MakeModel(const char* jinja) {
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 3, "content": "<|im_start|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|im_end|>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  auto tokenizer = Tokenizer::Parse(kFile, "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  auto chat = ChatTemplate::Parse(jinja, "", "");
  TANDEM_CHECK(chat.ok());
  const ToolFormat tool_format = ToolFormat::Of(*chat);
  return {.name = "fuzz",
          .tokenizer = tokenizer->release(),
          .chat_template = *std::move(chat),
          .tool_format = tool_format,
          .reasoning = ReasoningFormat(),
          .drafter = "model",
          .drafters = {"model", "ngram"},
          .context_length = kContext,
          .cache_tokens = 1000,
          .max_sequences = 4};
}

void CheckError(const absl::Status& status) {
  const HttpResponse response = ErrorResponse(status);
  TANDEM_CHECK(response.status >= 400 && response.status < 500);
  TANDEM_CHECK(response.body.size() < 4000);
  const auto json = SortedJson::parse(response.body);
  const SortedJson& error = json.at("error");
  TANDEM_CHECK(!error.at("message").get_ref<const std::string&>().empty());
  TANDEM_CHECK(error.at("param").is_null() || error.at("param").is_string());
}

void CheckRequest(const absl::StatusOr<ApiRequest>& request) {
  if (!request.ok()) return CheckError(request.status());
  TANDEM_CHECK(1 <= request->num_sequences() && request->num_sequences() <= 4);
  // Only a request that echoes its prompt may ask for no tokens.
  TANDEM_CHECK(request->request.max_tokens >= (request->echo ? 0 : 1));
  for (const auto& prompt : request->prompts) {
    TANDEM_CHECK(!prompt.empty());
    TANDEM_CHECK(prompt.size() + request->request.max_tokens <= kContext);
  }
}

// Checks that at least one endpoint accepts each sample.
void CheckSamples(const ServedModel& model) {
  for (const SortedJson& sample : Samples()) {
    const std::string body = sample.dump();
    IgnoredFields ignored;
    TANDEM_CHECK(ParseCompletionRequest(body, model).ok() ||
                 ParseChatRequest(body, model, absl::UnixEpoch()).ok() ||
                 ParseResponsesRequest(body, model, absl::UnixEpoch()).ok() ||
                 TokenizeBody(body, model, absl::UnixEpoch(), &ignored).ok() ||
                 DetokenizeBody(body, model, &ignored).ok());
  }
}

void FuzzOne(absl::string_view body) {
  static const ServedModel& model = *new ServedModel(MakeModel(
      "{% for m in messages %}<|im_start|>{{ m.content }}{{ m.tool_calls }}<|im_end|>{% endfor %}"
      "{{ 'a' if tools }}{{ '<think><tool_call><function=f><parameter=p>' if false }}"));
  static const bool checked = (CheckSamples(model), true);
  (void)checked;
  // This model's template has no place for tools, so tools, calls and results become text.
  static const ServedModel& without_place = *new ServedModel(
      MakeModel("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"));
  CheckRequest(ParseChatRequest(body, without_place, absl::UnixEpoch()));
  CheckRequest(ParseResponsesRequest(body, without_place, absl::UnixEpoch()));
  CheckRequest(ParseCompletionRequest(body, model));
  CheckRequest(ParseChatRequest(body, model, absl::UnixEpoch()));
  CheckRequest(ParseResponsesRequest(body, model, absl::UnixEpoch()));
  IgnoredFields ignored;
  const auto tokens = TokenizeBody(body, model, absl::UnixEpoch(), &ignored);
  if (!tokens.ok()) CheckError(tokens.status());
  const auto text = DetokenizeBody(body, model, &ignored);
  if (!text.ok()) CheckError(text.status());
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  return tandem::JsonMutator(tandem::Samples(), seed).MutateText(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
