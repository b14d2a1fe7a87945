#ifndef TANDEM_SERVER_API_REQUEST_H_
#define TANDEM_SERVER_API_REQUEST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/types.h"
#include "engine/engine.h"
#include "model/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "server/answer_size.h"

namespace tandem {

// What a request is held against.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  absl::StatusOr<ChatTemplate> chat_template;  // or why there is none
  std::string drafter = "none";
  int context_length = 0;
  int64_t cache_tokens = 0;  // that the target's cache can hold
  // The most sequences that a request may ask for.
  int max_sequences = 1;
  // What the answer to a request may come to, as answer_size.h counts.
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;

  static ServedModel Of(const Engine& engine, const std::string& name, int max_sequences,
                        int64_t max_answer_bytes = kDefaultMaxAnswerBytes);
  // Whether a conversation is put as the model was trained to read it: by a template of its own,
  // which this server knows.
  bool HasChatTemplate() const;
  // The most tokens that a sequence can have.
  int MaxLength() const;
};

// A request for text, checked and ready for the engine: `n` sequences of each prompt.
struct ApiRequest {
  bool is_chat = false;
  std::vector<std::vector<TokenId>> prompts;
  Request options;  // of every sequence; without prompt and sequence number
  int n = 1;
  bool stream = false;
  bool include_usage = false;        // in a stream
  bool include_token_texts = false;  // likewise
  bool echo = false;                 // the prompt's text in front of the answer's

  int num_sequences() const { return n * static_cast<int>(prompts.size()); }
  // Choice i of the answer, for the engine.
  Request RequestOf(int choice) const;
  // An error of the engine's, naming the field as this request does.
  absl::Status InItsNames(const absl::Status& status) const;
};

// Reads the body of POST /v1/completions or /v1/chat/completions. Every error names the field, what
// was given and what is allowed; so does a field that is not known. `now` is for chat templates
// that tell the day. docs/serving.md lists the fields.
absl::StatusOr<ApiRequest> ParseCompletionRequest(absl::string_view body, const ServedModel& model);
absl::StatusOr<ApiRequest> ParseChatRequest(absl::string_view body, const ServedModel& model,
                                            absl::Time now);

// 404 "model_not_found" unless `name` is the model's.
absl::Status CheckModelName(const std::string& name, const ServedModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_REQUEST_H_
