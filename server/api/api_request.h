#ifndef TANDEM_SERVER_API_API_REQUEST_H_
#define TANDEM_SERVER_API_API_REQUEST_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "json/request_fields.h"
#include "server/api/served_model.h"
#include "tandem/answer_reader.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/types.h"

namespace tandem {

// A request for text, checked and ready for the engine: `n` sequences of each prompt.
struct ApiRequest {
  bool is_chat = false;
  bool is_response = false;  // of /v1/responses, which are chats
  std::vector<std::vector<TokenId>> prompts;
  Request request;  // of every sequence; without prompt and sequence number
  int n = 1;        // choices of each prompt that are answered
  int best_of = 0;  // sequences of each prompt, the n likeliest of which are answered; 0: n
  bool stream = false;
  bool include_usage = false;        // in a stream
  bool include_token_texts = false;  // likewise
  bool echo = false;                 // the prompt's text in front of the answer's
  std::string echoed{};              // a chat's, with `echo`
  std::string echoed_reasoning{};    // the reasoning before it
  // Log-probabilities that are shown, of as many tokens beside each own one; -1 for none. The
  // engine may be asked for more.
  int num_logprobs = -1;
  int num_prompt_logprobs = -1;
  AnswerReader::Options reading{};  // how a chat's answers are taken apart
  std::string constraint_field{};   // that gave `request.constraint`
  JsonValue repeated = nullptr;     // members that the answer to a response's request repeats
  bool has_generic_tools = false;   // in the prompt (include/tandem/generic_tools.h)
  IgnoredFields ignored{};          // that were sent, and mean nothing here

  int sequences_per_prompt() const { return std::max(n, best_of); }
  int num_sequences() const { return sequences_per_prompt() * static_cast<int>(prompts.size()); }
  bool ShowsPrompts() const { return (echo && !is_chat) || num_prompt_logprobs >= 0; }
  const char* PromptField() const {
    return is_response ? "input" : is_chat ? "messages" : "prompt";
  }
  // Sequence i, for the engine.
  Request RequestOf(int sequence) const;
  // An error of the engine's, naming the field as this request does.
  absl::Status InItsNames(const absl::Status& status) const;
};

// Reads the body of POST /v1/completions, /v1/chat/completions or /v1/responses. Every error names
// the field, what was given and what is allowed; so does a field that is not known, if the model
// `is_strict`. `now` is for chat templates that tell the day. docs/requests.md lists the fields.
absl::StatusOr<ApiRequest> ParseCompletionRequest(absl::string_view body, const ServedModel& model);
absl::StatusOr<ApiRequest> ParseChatRequest(absl::string_view body, const ServedModel& model,
                                            absl::Time now);

absl::StatusOr<ApiRequest> ParseResponsesRequest(absl::string_view body, const ServedModel& model,
                                                 absl::Time now);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_API_REQUEST_H_
