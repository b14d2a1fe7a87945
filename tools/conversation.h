#ifndef TANDEM_TOOLS_CONVERSATION_H_
#define TANDEM_TOOLS_CONVERSATION_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// A conversation with an engine's target. Every message puts the whole of it to the target, which
// reads from the prefix cache as much as that has. Thread-compatible.
class Conversation {
 public:
  // `base` is every request without its prompt; its max_tokens are those of an answer.
  // `engine` must outlive this object.
  Conversation(Engine* engine, ChatFormat format, Request base)
      : engine_(engine), format_(std::move(format)), base_(std::move(base)) {}

  struct Callbacks {
    // Called once, before the first piece, with the request and how its answer is read.
    std::function<void(const Request&, const AnswerReader::Options&)> on_begin;
    // Called on a thread of the engine's; false ends the answer.
    std::function<bool(const Piece&)> on_piece;
    // Asked several times a second and after each piece, on any thread; true ends the answer.
    std::function<bool()> is_interrupted;
  };
  // The answer to `message`, which may be cut short: it counts as said all the same. After an error
  // the message counts as not said. OUT_OF_RANGE, with the numbers, if the context is full.
  absl::StatusOr<Completion> Say(const std::string& message, const Callbacks& callbacks);

  // The calls of the last answer that wait for a result, as messages have them.
  std::vector<JsonValue> OpenCalls() const;
  // Gives the first of them its result, and the answer to it if it was the last. Errors: Say's.
  // REQUIRES: there is one.
  absl::StatusOr<std::optional<Completion>> GiveResult(const std::string& result,
                                                       const Callbacks& callbacks);

  // The functions that the model may call from now on; null for none.
  void SetTools(JsonValue tools) { tools_ = std::move(tools); }
  // The system message of all requests from now on; empty for none.
  void SetSystem(std::string system) { system_ = std::move(system); }
  const std::string& system() const { return system_; }
  void SetDraftTokens(int draft_tokens) { base_.draft_tokens = draft_tokens; }
  // Forgets what was said, but for the system message.
  void Reset() { said_ = JsonValue::array(); }

  // Most tokens of a prompt and its answer together, by the context and by the cache.
  int room() const;

 private:
  // Makes of `request` the one for the answer to the last message.
  absl::StatusOr<AnswerReader::Options> PutNext(Request* request) const;
  // The answer to `message`, which is said only with it.
  absl::StatusOr<Completion> Answer(JsonValue message, const Callbacks& callbacks);

  Engine* const engine_;
  const ChatFormat format_;
  Request base_;
  std::string system_;
  JsonValue tools_ = nullptr;
  JsonValue said_ = JsonValue::array();  // all messages except the system's
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONVERSATION_H_
