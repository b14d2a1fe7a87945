#ifndef TANDEM_TOOLS_ANSWER_TEXT_H_
#define TANDEM_TOOLS_ANSWER_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/answer_reader.h"
#include "tandem/completion.h"
#include "tandem/detokenizer.h"
#include "tandem/json_value.h"
#include "tandem/request.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Whether to write colours to standard output: it is a terminal, $TERM is not "dumb", and $NO_COLOR
// is unset or empty (https://no-color.org).
bool StandardOutputTakesColours();

// Paints text for a terminal: accepted draft tokens in green, reasoning dim. Drops control
// characters other than line ends and tabs, so that a model cannot control the terminal.
// Thread-compatible.
class ProvenanceColours {
 public:
  struct Ink {
    bool is_drafted = false;
    bool is_dim = false;
    friend bool operator==(const Ink&, const Ink&) = default;
  };
  // Appends `text` in this ink.
  void Paint(std::string_view text, Ink ink, std::string* out);

 private:
  Ink ink_{};  // the terminal's current one
};

// Formats an answer for display, with reasoning and calls separated from the content:
//
//   reasoning:            with colours: the reasoning dim, without these headings
//   The user asks ...
//
//   answer:
//   Let me look.
//   call get_weather {"city": "Paris"}
//
// Thread-compatible.
class AnswerText {
 public:
  // Plain text.
  explicit AnswerText(const AnswerReader::Options& reading) : reader_(reading) {}
  // With colours, for the answer to `request`, whose prompt must be token ids. The text is decoded
  // from the tokens, so it includes stop strings. `tokenizer` must outlive this object.
  AnswerText(const AnswerReader::Options& reading, const Tokenizer* tokenizer,
             const Request& request);
  // Formats a complete answer as plain text.
  static std::string Whole(const AnswerReader::Options& reading, std::string_view text);

  // Returns the text to print for the next piece.
  std::string Next(const Piece& piece);
  // Ends the answer: returns the text that was held back, and resets the terminal's colour.
  std::string End();

 private:
  enum class Part { kNone, kReasoning, kContent, kCall };
  // Starts `part`: appends the heading or the blank line that separates it from the previous part.
  void Begin(Part part, std::string* out);
  void Append(const AnswerDelta& delta, bool is_drafted, std::string* out);
  void Write(std::string_view text, ProvenanceColours::Ink ink, std::string* out);

  AnswerReader reader_;
  std::unique_ptr<Detokenizer> detokenizer_{};  // with colours
  ProvenanceColours colours_{};
  Part part_ = Part::kNone;
};

// Adds "reasoning" (null if empty), "content" and "tool_calls":
// [{"name": ..., "arguments": "{...}"}, ...].
void AddToJson(const AnswerDelta& answer, SortedJson* json);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ANSWER_TEXT_H_
