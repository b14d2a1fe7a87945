#ifndef TANDEM_TOOLS_CHAT_FORMAT_H_
#define TANDEM_TOOLS_CHAT_FORMAT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/chat_template.h"
#include "tandem/engine.h"
#include "tandem/tokenizer.h"

namespace tandem {

// How a conversation is put to a model: by its own template.
class ChatFormat {
 public:
  // Of the model at `path`. UNIMPLEMENTED naming it if it has no chat template. `tokenizer` must
  // outlive the result.
  static absl::StatusOr<ChatFormat> Load(const std::string& path, const Tokenizer* tokenizer);
  // Of an engine's target. `engine` must outlive the result.
  static absl::StatusOr<ChatFormat> Load(const Engine* engine) {
    return Load(engine->target_info().path, &engine->tokenizer());
  }

  // Makes of `request` the one for the answer to the last of these messages: its prompt, and,
  // unless it is to go on past end tokens, the tokens that end an answer.
  absl::Status Put(absl::Span<const ChatMessage> messages, Request* request) const;
  // The same of a request whose prompt is the user's message, behind a system message if there is
  // one. INVALID_ARGUMENT if its prompt is given as ids.
  absl::Status PutTurn(const std::optional<std::string>& system, Request* request) const;

 private:
  ChatFormat(const Tokenizer* tokenizer, ChatTemplate chat_template)
      : tokenizer_(tokenizer), template_(std::move(chat_template)) {}

  const Tokenizer* tokenizer_;
  ChatTemplate template_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHAT_FORMAT_H_
