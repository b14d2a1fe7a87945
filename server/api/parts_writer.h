#ifndef TANDEM_SERVER_API_PARTS_WRITER_H_
#define TANDEM_SERVER_API_PARTS_WRITER_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/answer_writer.h"
#include "tandem/answer_reader.h"

namespace tandem {

// Writes one sequence's answer as separate parts for reasoning, text and calls, in the order of the
// answer.
class PartsWriter : public AnswerWriter {
 public:
  std::string PieceEvents(int /*choice*/, const OwnedPiece& piece) final {
    return TextEvents(piece.text);
  }
  std::string EndEvents(int /*choice*/, FinishReason reason,
                        absl::Span<const Completion> /*completions*/) final {
    return LastTextEvents(reason);
  }

 protected:
  enum class Kind { kReasoning, kText, kCall };
  struct Part {
    Kind kind = Kind::kText;
    std::string name{};  // of a call, like call_id
    std::string call_id{};
    std::string text{};                 // of a call: its arguments
    size_t num_sent = 0;                // bytes of the text that events have sent
    std::optional<FinishReason> end{};  // kStop if another part follows; none before the end
  };

  // `is_never_empty`: an answer without a part has an empty text.
  PartsWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp,
              bool is_never_empty)
      : AnswerWriter(request, model, std::move(stamp)),
        is_never_empty_(is_never_empty),
        reader_(request->reading) {}

  const std::vector<Part>& parts() const { return parts_; }
  // Splits a whole answer.
  void TakeAnswer(const Completion& completion) {
    TextEvents(completion.text);
    LastTextEvents(completion.finish_reason);
  }

  // Return the events that say that the last part begins, that `more` follows in its text, and
  // that it has ended.
  virtual std::string PartBegins() = 0;
  virtual std::string PartContinues(const std::string& more) = 0;
  virtual std::string PartEnds() = 0;

 private:
  // Pushes single bytes, because a delta does not keep the order of its parts.
  std::string TextEvents(std::string_view text) {
    std::string events;
    for (size_t i = 0; i < text.size(); ++i) Take(reader_.Push(text.substr(i, 1)), &events);
    return events + UnsentEvents();
  }

  std::string LastTextEvents(FinishReason reason) {
    std::string events;
    Take(reader_.Finish(), &events);
    if (parts_.empty() && is_never_empty_) Begin({}, &events);
    if (!parts_.empty()) EndLast(reason, &events);
    return events;
  }

  void Take(const AnswerDelta& delta, std::string* events) {
    if (!delta.reasoning.empty()) PartOf(Kind::kReasoning, events).text += delta.reasoning;
    if (!delta.content.empty()) PartOf(Kind::kText, events).text += delta.content;
    for (const AnswerDelta::Call& call : delta.calls) {
      if (!call.name.empty()) {
        Begin(
            {.kind = Kind::kCall, .name = call.name, .call_id = CallIdOf(/*choice=*/0, call.index)},
            events);
      }
      parts_.back().text += call.arguments;
    }
  }

  // Returns the part for text of this kind: the last one, or a new one.
  Part& PartOf(Kind kind, std::string* events) {
    if (parts_.empty() || parts_.back().kind != kind) Begin({.kind = kind}, events);
    return parts_.back();
  }

  void Begin(Part part, std::string* events) {
    if (!parts_.empty()) EndLast(FinishReason::kStop, events);
    parts_.push_back(std::move(part));
    *events += PartBegins();
  }

  std::string UnsentEvents() {
    if (parts_.empty() || parts_.back().num_sent == parts_.back().text.size()) return "";
    Part& part = parts_.back();
    const std::string more = part.text.substr(part.num_sent);
    part.num_sent = part.text.size();
    return PartContinues(more);
  }

  void EndLast(FinishReason reason, std::string* events) {
    *events += UnsentEvents();
    parts_.back().end = reason;
    *events += PartEnds();
  }

  const bool is_never_empty_;
  AnswerReader reader_;
  std::vector<Part> parts_{};
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_PARTS_WRITER_H_
