// The fields of a request for text, by subject. The RequestFields remember errors.
#ifndef TANDEM_SERVER_API_FIELD_GROUPS_H_
#define TANDEM_SERVER_API_FIELD_GROUPS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/chat_input.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// ---- How it is drawn (sampling_fields.cc) ----

// A list of token ids; nothing if it is something else.
std::optional<std::vector<TokenId>> AsTokenIds(const JsonValue& json);

// "model", which must be the model's name.
void ReadModelName(RequestFields* fields, const ServedModel& model);
// "model", and how a text is drawn, where it stops and what drafts it. Fields that the request does
// not name stay as the model has them. "speculation": {"draft_tokens": 4 or "auto", "drafter": ...,
// "verifier":
// ...}, where no other member is let pass. As vLLM has them: "kv_transfer_params", pages that
// travel between workers, and "cache_salt", the tenant, a string that is not empty.
void ReadGeneration(RequestFields* fields, const ServedModel& model, Request* options);

// Fields of other servers that are not supported here: errors unless their value changes nothing.
void RefuseUnservedSampling(RequestFields* fields);
// Fields that can have no effect here, whatever they say.
void TakeFieldsWithoutEffect(RequestFields* fields);

// ---- How long it may be (request_lengths.cc) ----

// The fields of how long prompts and answers may be, as they are sent.
struct LengthFields {
  static constexpr int kWhatFits = -1;
  std::string field = "max_tokens";       // that gave the next
  std::optional<int> max_tokens{};        // or kWhatFits
  std::optional<int> truncated_prompt{};  // to so many tokens, or kWhatFits

  // `names`: of equal meaning; those that are given must agree. `may_be_zero`: 0 is allowed.
  void Read(RequestFields* fields, std::initializer_list<const char*> names, bool may_be_zero);
};

// An error of the field `n` or `best_of` if `request` has more sequences than one may.
absl::Status CheckSequences(const ServedModel& model, const ApiRequest& request);

// Sets options.max_tokens and cuts prompts, so that both fit the context and the answer what it may
// hold. `otherwise`: the most tokens without max_tokens.
absl::Status SetLengths(const ServedModel& model, const LengthFields& lengths, int otherwise,
                        ApiRequest* request);

// ---- What it must be, or is expected to be (structure_fields.cc) ----

// "response_format" as OpenAI has it; "structured_outputs" and "guided_*" as vLLM, "json_schema",
// "regex" and "ebnf" as SGLang; at most one of them. Returns the field that was given, empty for
// none.
std::string ReadConstraint(RequestFields* fields, Request* options);
// The same of a request of OpenAI's Responses API, whose "text": {"format": ...} takes the place of
// "response_format".
std::string ReadConstraintOfResponse(RequestFields* fields, Request* options);

// "prediction": {"type": "content", "content": a string or a list of text parts}.
void ReadPrediction(RequestFields* fields, Request* options);

// ---- What the model thinks before it answers (reasoning_fields.cc) ----

// Whether reasoning is taken out of the text, and shown. Other servers' names.
struct ReasoningFields {
  bool separate = true;  // "separate_reasoning"
  bool include = true;   // "include_reasoning"
  bool stream = true;    // "stream_reasoning"

  void Read(RequestFields* fields);
};

// Says in `request` how reasoning is found in its answers, and has its constraint hold what follows
// the reasoning. Where markers are special tokens, which constraints cannot have, a constrained
// answer has no reasoning. `request` has its prompt, which is that of `chat`.
void SetReasoning(const ReasoningFields& fields, const ChatInput& chat, const ServedModel& model,
                  ApiRequest* request);

// ---- Functions that the model may call (tool_fields.cc) ----

// "tools", "tool_choice" and "parallel_tool_calls" as OpenAI has them. Gives the functions to
// `chat`, and to `request` how calls are found in the answer. Where a call must come, or its
// arguments are held to a schema ("strict"), that is a constraint: not possible next to another. To
// be called after ReadConstraint.
void ReadTools(const ServedModel& model, RequestFields* fields, ChatInput* chat,
               ApiRequest* request);
// The same as OpenAI's Responses API has it, where a function's members are the tool's own.
void ReadToolsOfResponse(const ServedModel& model, RequestFields* fields, ChatInput* chat,
                         ApiRequest* request);
// "tools" alone, as the template is given them.
void ReadToolsOfTemplate(const ServedModel& model, RequestFields* fields, ChatInput* chat);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_FIELD_GROUPS_H_
