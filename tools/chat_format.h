#ifndef TANDEM_TOOLS_CHAT_FORMAT_H_
#define TANDEM_TOOLS_CHAT_FORMAT_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tandem/answer_reader.h"
#include "tandem/chat_input.h"
#include "tandem/chat_template.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {

// How a conversation is put to a model: by its own template.
class ChatFormat {
 public:
  // The format of the model at `path`. UNIMPLEMENTED naming it if it has no chat template.
  // `tokenizer` must outlive the result.
  static absl::StatusOr<ChatFormat> Load(const std::string& path, const Tokenizer* tokenizer);
  // The format of an engine's target. `engine` must outlive the result.
  static absl::StatusOr<ChatFormat> Load(const Engine* engine) {
    return Load(engine->target_info().path, &engine->tokenizer());
  }

  // Makes of `request` the one for the answer to the last message of `input`, asked now: its
  // prompt, the markers that its text shows, what strict functions hold it to, and, unless it is to
  // go on past end tokens, the tokens that end an answer. Returns how the answer is read. Errors:
  // those of EncodeChat and ChatAnswer::Of.
  absl::StatusOr<AnswerReader::Options> Put(ChatInput input, Request* request) const;

  // The rest of a conversation that has one message of the user.
  struct Turn {
    std::optional<std::string> system{};  // message
    JsonValue tools = nullptr;            // as ChatInput's
  };
  // The same of a request whose prompt is the user's message. INVALID_ARGUMENT if its prompt is
  // given as ids.
  absl::StatusOr<AnswerReader::Options> PutTurn(const Turn& turn, Request* request) const;

 private:
  ChatFormat(const Tokenizer* tokenizer, ChatTemplate chat_template)
      : tokenizer_(tokenizer), template_(std::move(chat_template)) {}

  const Tokenizer* tokenizer_;
  ChatTemplate template_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHAT_FORMAT_H_
