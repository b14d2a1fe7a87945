#ifndef TANDEM_TOOLS_CONVERSATION_H_
#define TANDEM_TOOLS_CONVERSATION_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/chat_template.h"
#include "tandem/engine.h"
#include "tools/chat_format.h"

namespace tandem {

// A conversation with an engine's target: what was said is put to it again with every message, and
// read from the prefix cache as far as it is there. Thread-compatible.
class Conversation {
 public:
  // `base` is what every request has beside its prompt; its max_tokens are those of an answer.
  // `engine` must outlive this object.
  Conversation(Engine* engine, ChatFormat format, Request base)
      : engine_(engine), format_(std::move(format)), base_(std::move(base)) {}

  struct Callbacks {
    // Called once, before the first piece.
    std::function<void(absl::Span<const TokenId> prompt)> on_prompt;
    // Of a thread of the engine's; false ends the answer.
    std::function<bool(const Piece&)> on_piece;
    // Asked several times a second and after each piece, on any thread; true ends the answer.
    std::function<bool()> is_interrupted;
  };
  // The answer to `message`, which may be cut short: it counts as said all the same. After an error
  // the message counts as not said. OUT_OF_RANGE, with the numbers, if the context is full.
  absl::StatusOr<Completion> Say(const std::string& message, const Callbacks& callbacks);

  // Of all messages from now on; empty for none.
  void SetSystem(std::string system) { system_ = std::move(system); }
  const std::string& system() const { return system_; }
  void SetDraftTokens(int draft_tokens) { base_.draft_tokens = draft_tokens; }
  // Forgets what was said, but for the system message.
  void Reset() { said_.clear(); }

  // Tokens that a prompt and its answer may have together: what the context and the cache hold.
  int room() const;

 private:
  // The request for the answer to what was said last.
  absl::StatusOr<Request> NextRequest() const;

  Engine* const engine_;
  const ChatFormat format_;
  Request base_;
  std::string system_;
  std::vector<ChatMessage> said_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONVERSATION_H_
