#ifndef TANDEM_INCLUDE_TANDEM_ANSWER_READER_H_
#define TANDEM_INCLUDE_TANDEM_ANSWER_READER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/answer_delta.h"
#include "tandem/output_constraint.h"
#include "tandem/reasoning.h"
#include "tandem/tokenizer.h"
#include "tandem/tool_calls.h"
#include "tandem/types.h"

namespace tandem {

// Takes the text of a chat's answer apart, however it is cut into pieces: reasoning, content and
// calls, as far as the options have them. Calls come after the reasoning. `ChatAnswer::Of`
// (chat_answer.h) makes the options of a conversation. Thread-compatible.
//
//   AnswerReader reader(chat_answer.reading);
//   AnswerDelta answer = reader.Push(piece.text);  // per piece
//   answer.Append(reader.Finish());
class AnswerReader {
 public:
  struct Reasoning {
    ReasoningSplitter::Options splitter{};
    bool is_shown = true;     // else it is left out
    bool is_streamed = true;  // as it comes, else at once when it is whole
  };
  struct Options {
    std::optional<Reasoning> reasoning{};
    std::optional<ToolCallParser::Options> tools{};

    // Reads `given` too, where the answer may begin with reasoning, unless a constraint stands
    // against its markers, which are special tokens then; what follows it keeps to the constraint.
    // Appends markers to `shown_special_tokens`.
    void AddReasoning(const Reasoning& given, const Tokenizer& tokenizer,
                      std::optional<OutputConstraint>* constraint,
                      std::vector<TokenId>* shown_special_tokens);
    // Whether there is more than content to tell apart.
    bool TakesApart() const { return reasoning.has_value() || tools.has_value(); }
  };
  explicit AnswerReader(const Options& options);
  // A whole answer.
  static AnswerDelta Read(const Options& options, std::string_view text);

  AnswerDelta Push(std::string_view text);
  // Ends the text: returns the part that was held back.
  AnswerDelta Finish();

  int num_calls() const { return tools_.has_value() ? tools_->num_calls() : 0; }

 private:
  // The part of the reasoning that is shown, now or later.
  AnswerDelta Shown(AnswerDelta delta, bool is_last);

  std::optional<Reasoning> reasoning_{};
  std::optional<ReasoningSplitter> splitter_{};
  std::optional<ToolCallParser> tools_{};
  std::string held_reasoning_{};  // until it is whole
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ANSWER_READER_H_
