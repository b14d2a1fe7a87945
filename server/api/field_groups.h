// Readers for the fields of a request for text, grouped by subject. Errors are remembered by the
// RequestFields.
#ifndef TANDEM_SERVER_API_FIELD_GROUPS_H_
#define TANDEM_SERVER_API_FIELD_GROUPS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// ---- Sampling (sampling_fields.cc) ----

// Returns the list of token ids, or nothing if `json` is not one.
std::optional<std::vector<TokenId>> AsTokenIds(const JsonValue& json);

// Reads "model", which must be the model's name.
void ReadModelName(RequestFields* fields, const ServedModel& model);
// Reads "model" and the fields for sampling, stops and drafts. Absent fields keep the model's
// defaults. "speculation": {"draft_tokens": 4 or "auto", "drafter": ..., "verifier": ...} may not
// have other members. Also reads these fields of vLLM: "kv_transfer_params", for pages that travel
// between workers, and "cache_salt", the tenant, a string that is not empty.
void ReadGeneration(RequestFields* fields, const ServedModel& model, Request* options);

// ---- The fields of all endpoints and engines (known_fields.cc) ----

// The effects of a field where it is served. None: its value is not used here.
enum FieldEffect : unsigned {
  kNoEffect = 0,
  kOnPrompt = 1,   // the prompt's tokens
  kOnAnswer = 2,   // the answer, or its cost
  kOnDecoding = 4  // the text of given tokens
};

// A field of a whole request that one of our endpoints, OpenAI's API, vLLM, SGLang, llama.cpp or
// Ollama has.
struct KnownField {
  const char* name;
  unsigned effect;
  // JSON values with commas between that ask for nothing, next to null, "" and [].
  const char* neutral = "";
  const char* instead = "";  // fields to use in its place, with spaces between, the best first
};
absl::Span<const KnownField> KnownFields();

// Refuses known fields that the endpoint does not read, unless their value asks for nothing, or
// they have none of the effects that matter to the endpoint. Call after all fields are read.
void RefuseFieldsOfOthers(unsigned effects, RequestFields* fields);

// ---- Lengths (request_lengths.cc) ----

// The length limits of prompts and answers, as sent.
struct LengthFields {
  static constexpr int kAsManyAsFit = -1;
  std::string field = "max_tokens";       // the field that set max_tokens
  std::optional<int> max_tokens{};        // or kAsManyAsFit
  std::optional<int> truncated_prompt{};  // keep the last N tokens of the prompt, or kAsManyAsFit

  // Reads the fields `names`, which are synonyms: those that are given must agree. 0 is allowed if
  // `may_be_zero`.
  void Read(RequestFields* fields, std::initializer_list<const char*> names, bool may_be_zero);
};

// Returns an error of the field `n` or `best_of` if `request` has too many sequences.
absl::Status CheckSequences(const ServedModel& model, const ApiRequest& request);

// Sets options.max_tokens and truncates prompts, so that both fit the context, and the answer its
// size limit. `otherwise` is the maximum number of tokens if max_tokens is absent.
absl::Status SetLengths(const ServedModel& model, const LengthFields& lengths, int otherwise,
                        ApiRequest* request);

// ---- Constraints and predictions (structure_fields.cc) ----

// Reads OpenAI's "response_format", vLLM's "structured_outputs" and "guided_*", and SGLang's
// "json_schema", "regex" and "ebnf"; at most one may be given. Returns the name of the given field,
// or an empty string.
std::string ReadConstraint(RequestFields* fields, Request* options);
// The same for OpenAI's Responses API, which has "text": {"format": ...} in place of
// "response_format".
std::string ReadConstraintOfResponse(RequestFields* fields, Request* options);

// Reads "prediction": {"type": "content", "content": a string or a list of text parts}.
void ReadPrediction(RequestFields* fields, Request* options);

// ---- Reasoning (reasoning_fields.cc) ----

// Whether reasoning is separated from the text, and whether it is shown. The names are those of
// other servers.
struct ReasoningFields {
  bool separate = true;  // "separate_reasoning"
  bool include = true;   // "include_reasoning"
  bool stream = true;    // "stream_reasoning"
  // "max_thinking_tokens", or a name of it that another server has: `limit_field`.
  std::optional<int> max_thinking_tokens{};
  std::string limit_field = "max_thinking_tokens";

  void Read(RequestFields* fields);
  // Reads only the limit: all of its names that are given must agree, and -1 under a name of other
  // servers means no limit.
  void ReadLimit(RequestFields* fields);
};

// Sets in `request` how reasoning is found in its answers and its limit, and applies the request's
// constraint only to the text after the reasoning. Constraints cannot contain special tokens, so
// with special tokens as markers a constrained answer has no reasoning. Nor does one that is chosen
// by the conditional law: an error of `choice_law` if the prompt has opened the reasoning.
// `request` has its prompt, which was made from `chat`. INVALID_ARGUMENT naming `limit_field` if
// there is a limit and the model does not mark its reasoning.
absl::Status SetReasoning(const ReasoningFields& fields, ChatInput chat, const ServedModel& model,
                          ApiRequest* request);

// ---- Tools (tool_fields.cc) ----

// Reads OpenAI's "tools", "tool_choice" and "parallel_tool_calls". Gives the functions to `chat`,
// and sets in `request` how calls are found in the answer. A required call, or arguments that must
// follow a schema ("strict"), are a constraint, and so cannot be combined with another one. Call
// after ReadConstraint.
void ReadTools(const ServedModel& model, RequestFields* fields, ChatInput* chat,
               ApiRequest* request);
// The same for OpenAI's Responses API, where a function's members are those of the tool itself.
void ReadToolsOfResponse(const ServedModel& model, RequestFields* fields, ChatInput* chat,
                         ApiRequest* request);
// Reads the same fields as ReadTools, but only as input of the template.
void ReadToolsOfTemplate(const ServedModel& model, RequestFields* fields, ChatInput* chat);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_FIELD_GROUPS_H_
