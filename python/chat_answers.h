// The answers of chats: reasoning, content and calls of functions apart.
#ifndef TANDEM_PYTHON_CHAT_ANSWERS_H_
#define TANDEM_PYTHON_CHAT_ANSWERS_H_

#include <tandem/answer_delta.h>
#include <tandem/answer_reader.h>
#include <tandem/chat_answer.h>
#include <tandem/completion.h>
#include <tandem/owned_piece.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::python {

struct AnswerParts {
  std::string reasoning{};
  std::string content{};
  std::vector<AnswerDelta::Call> tool_calls{};

  static AnswerParts Of(AnswerDelta delta) {
    return {std::move(delta.reasoning), std::move(delta.content), std::move(delta.calls)};
  }
  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};
struct ChatPiece : OwnedPiece, AnswerParts {};
struct ChatCompletion : Completion, AnswerParts {};

// Reads one answer. Thread-compatible.
class ChatAnswerReader {
 public:
  explicit ChatAnswerReader(ChatAnswer answer)
      : answer_(std::move(answer)), reader_(answer_.reading) {}

  ChatPiece Push(const OwnedPiece& piece) {
    return {piece, AnswerParts::Of(reader_.Push(piece.text))};
  }
  // The text that was held back until its end, as a piece without tokens; nothing if there is none.
  std::optional<ChatPiece> Finish() {
    AnswerParts parts = AnswerParts::Of(reader_.Finish());
    if (parts.empty()) return std::nullopt;
    return ChatPiece{{}, std::move(parts)};
  }
  ChatCompletion Read(const Completion& completion) const {
    return {completion, AnswerParts::Of(AnswerReader::Read(answer_.reading, completion.text))};
  }
  const ChatAnswer& answer() const { return answer_; }

 private:
  ChatAnswer answer_;
  AnswerReader reader_;
};

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_CHAT_ANSWERS_H_
