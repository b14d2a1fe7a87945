#ifndef TANDEM_SERVER_API_API_REQUEST_H_
#define TANDEM_SERVER_API_API_REQUEST_H_

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/json/request_fields.h"
#include "server/api/served_model.h"
#include "tandem/answer_reader.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// A request for text, checked and ready for the engine: `n` sequences for each prompt.
struct ApiRequest {
  bool is_chat = false;
  bool is_response = false;  // from /v1/responses; is_chat is true as well
  bool is_message = false;   // from /v1/messages; is_chat is true as well
  std::vector<std::vector<TokenId>> prompts;
  Request request;  // for every sequence; without prompt and sequence number
  int n = 1;        // choices of each prompt in the answer
  int best_of = 0;  // sequences of each prompt, the n likeliest of which are returned; 0: n
  bool stream = false;
  bool include_usage = false;        // in a stream
  bool include_token_texts = false;  // in a stream
  bool echo = false;                 // the prompt's text goes before the answer's
  std::string echoed{};              // with `echo`: the start of the answer, from the chat
  std::string echoed_reasoning{};    // the reasoning before `echoed`
  // The number of alternatives for which each token shows log-probabilities; -1: none shown. The
  // engine may be asked for more.
  int num_logprobs = -1;
  int num_prompt_logprobs = -1;
  bool tokens_as_ids = false;       // log-probabilities name tokens "token_id:5", not by texts
  AnswerReader::Options reading{};  // how a chat's answers are split
  std::string constraint_field{};   // the field that gave `request.constraint`
  // Names of a chat's fields, and those of /v1/messages in their place.
  std::vector<std::pair<std::string, std::string>> field_names{};
  JsonValue repeated = nullptr;    // fields of /v1/responses that the answer repeats
  bool has_generic_tools = false;  // in the prompt (include/tandem/generic_tools.h)
  IgnoredFields ignored{};         // fields that were sent, but are unknown here

  int sequences_per_prompt() const { return std::max(n, best_of); }
  int num_sequences() const { return sequences_per_prompt() * static_cast<int>(prompts.size()); }
  bool ShowsPrompts() const { return (echo && !is_chat) || num_prompt_logprobs >= 0; }
  const char* PromptField() const {
    return is_response ? "input" : is_chat ? "messages" : "prompt";
  }
  // Returns sequence i, for the engine.
  Request RequestOf(int sequence) const;
  // Renames the field in an error of the engine to the request's own name for it.
  absl::Status WithRequestFieldNames(const absl::Status& status) const;
  // Renames a field of a chat by `field_names`.
  absl::Status InFieldNames(const absl::Status& status) const;
};

// Reads the body of POST /v1/completions, /v1/chat/completions, /v1/responses, /v1/messages or
// /v1/messages/count_tokens, which needs no `max_tokens`. Every error names the field, the value
// given and the values allowed. An unknown field is an error if the model `is_strict`. `now` is for
// chat templates that print the date. docs/server/requests.md lists the fields.
absl::StatusOr<ApiRequest> ParseCompletionRequest(absl::string_view body, const ServedModel& model);
absl::StatusOr<ApiRequest> ParseChatRequest(absl::string_view body, const ServedModel& model,
                                            absl::Time now);

absl::StatusOr<ApiRequest> ParseResponsesRequest(absl::string_view body, const ServedModel& model,
                                                 absl::Time now);

absl::StatusOr<ApiRequest> ParseMessagesRequest(absl::string_view body, const ServedModel& model,
                                                absl::Time now);
absl::StatusOr<ApiRequest> ParseCountTokensRequest(absl::string_view body, const ServedModel& model,
                                                   absl::Time now);

// Reads the fields of a chat from `json`. `request` has what is known of it already.
absl::StatusOr<ApiRequest> ParseChatJson(const JsonValue& json, const ServedModel& model,
                                         absl::Time now, ApiRequest request);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_API_REQUEST_H_
