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

// Splits the text of a chat answer into reasoning, content and calls, as far as the options ask for
// them, however the text is cut into pieces. Calls come after the reasoning. `ChatAnswer::Of`
// (chat_answer.h) makes the options for a conversation. Thread-compatible.
//
//   AnswerReader reader(chat_answer.reading);
//   AnswerDelta answer = reader.Push(piece.text);  // per piece
//   answer.Append(reader.Finish());
class AnswerReader {
 public:
  struct Reasoning {
    ReasoningSplitter::Options splitter{};
    bool is_shown = true;     // otherwise dropped
    bool is_streamed = true;  // piece by piece, else at once when it is complete
  };
  struct Options {
    std::optional<Reasoning> reasoning{};
    std::optional<ToolCallParser::Options> tools{};

    // Adds reading of the reasoning `given`, if the answer may begin with reasoning. Does nothing
    // if there is a constraint and the markers are special tokens, which constraints cannot
    // contain. Otherwise changes the constraint to apply to the text after the reasoning. Appends
    // markers to `shown_special_tokens`.
    void AddReasoning(const Reasoning& given, const Tokenizer& tokenizer,
                      std::optional<OutputConstraint>* constraint,
                      std::vector<TokenId>* shown_special_tokens);
    // Whether the reader separates anything from the content.
    bool TakesApart() const { return reasoning.has_value() || tools.has_value(); }
  };
  explicit AnswerReader(const Options& options);
  // Reads a whole answer.
  static AnswerDelta Read(const Options& options, std::string_view text);

  AnswerDelta Push(std::string_view text);
  // Ends the text: returns the part that was held back.
  AnswerDelta Finish();

  int num_calls() const { return tools_.has_value() ? tools_->num_calls() : 0; }

 private:
  // Returns the delta without the reasoning that is dropped or held back.
  AnswerDelta Shown(AnswerDelta delta, bool is_last);

  std::optional<Reasoning> reasoning_{};
  std::optional<ReasoningSplitter> splitter_{};
  std::optional<ToolCallParser> tools_{};
  std::string held_reasoning_{};  // until it is complete
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ANSWER_READER_H_
