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

// Formats a conversation as a prompt, with the model's own chat template.
class ChatFormat {
 public:
  // Loads the format of the model at `path`. UNIMPLEMENTED, with the path, if it does not have a
  // chat template. `tokenizer` must outlive the result.
  static absl::StatusOr<ChatFormat> Load(const std::string& path, const Tokenizer* tokenizer);
  // Loads the format of an engine's target. `engine` must outlive the result.
  static absl::StatusOr<ChatFormat> Load(const Engine* engine) {
    return Load(engine->target_info().path, &engine->tokenizer());
  }

  // Completes `request` so that it asks for the answer to the last message of `input`, with the
  // current time as the template's date. Sets the prompt, the special tokens that the text shows,
  // the constraint of strict functions, the thinking budget and, unless `ignore_eos` is set, the
  // tokens that end an answer. Returns the options for reading the answer. Errors: those of
  // EncodeChat and ChatAnswer::Of.
  absl::StatusOr<AnswerReader::Options> Put(ChatInput input, Request* request) const;

  // The parts of a one-message conversation other than the user's message.
  struct Turn {
    std::optional<std::string> system{};  // message
    // The same as in ChatInput.
    JsonValue tools = nullptr;
    std::optional<int> max_thinking_tokens{};
  };
  // Does the same for a request whose prompt is the user's message. INVALID_ARGUMENT if the prompt
  // is given as token ids.
  absl::StatusOr<AnswerReader::Options> PutTurn(const Turn& turn, Request* request) const;

 private:
  ChatFormat(const Tokenizer* tokenizer, ChatTemplate chat_template)
      : tokenizer_(tokenizer), template_(std::move(chat_template)) {}

  const Tokenizer* tokenizer_;
  ChatTemplate template_;
};

// A conversation with an engine's target. Every message sends the whole conversation, and the
// engine takes the part that it already has from the prefix cache. Thread-compatible.
class Conversation {
 public:
  // `base` has the settings of every request, without a prompt; its max_tokens limits an answer.
  // `engine` must outlive this object.
  Conversation(Engine* engine, ChatFormat format, Request base)
      : engine_(engine), format_(std::move(format)), base_(std::move(base)) {}

  struct Callbacks {
    // Called once, before the first piece, with the request and the options for reading its answer.
    std::function<void(const Request&, const AnswerReader::Options&)> on_begin;
    // Called on a thread of the engine; false ends the answer.
    std::function<bool(const Piece&)> on_piece;
    // Called several times a second and after each piece, on any thread; true ends the answer.
    std::function<bool()> is_interrupted;
  };
  // Sends `message` and returns the answer. An answer that was cut short also becomes a part of the
  // conversation; after an error, neither message nor answer does. OUT_OF_RANGE, with the numbers,
  // if the context is full.
  absl::StatusOr<Completion> Send(const std::string& message, const Callbacks& callbacks);

  // The calls of the last answer that do not have a result yet, as they appear in messages.
  std::vector<JsonValue> OpenCalls() const;
  // Gives the first open call its result. If it was the last one, returns the model's answer,
  // otherwise nullopt. Errors: those of Send. REQUIRES: there is an open call.
  absl::StatusOr<std::optional<Completion>> GiveResult(const std::string& result,
                                                       const Callbacks& callbacks);

  // Sets the functions that the model may call in later requests; null for no functions.
  void SetTools(JsonValue tools) { tools_ = std::move(tools); }
  // Limits the reasoning of later answers.
  void SetMaxThinkingTokens(std::optional<int> max_tokens) { max_thinking_tokens_ = max_tokens; }
  // Sets the system message of later requests; empty for no system message.
  void SetSystem(std::string system) { system_ = std::move(system); }
  const std::string& system() const { return system_; }
  void SetDraftTokens(int draft_tokens) { base_.draft_tokens = draft_tokens; }
  // Forgets all messages except the system message.
  void Reset() { said_ = JsonValue::array(); }

  // The maximum number of tokens of a prompt and its answer together: the smaller of the context
  // and the cache.
  int room() const;

 private:
  // Completes `request` so that it asks for the answer to the last message.
  absl::StatusOr<AnswerReader::Options> PutNext(Request* request) const;
  // Adds `message`, gets the answer and adds that. Without an answer, removes `message` again.
  absl::StatusOr<Completion> Answer(JsonValue message, const Callbacks& callbacks);

  Engine* const engine_;
  const ChatFormat format_;
  Request base_;
  std::string system_;
  JsonValue tools_ = nullptr;
  std::optional<int> max_thinking_tokens_;
  JsonValue said_ = JsonValue::array();  // all messages except the system message
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONVERSATION_H_
