#ifndef TANDEM_TOOLS_ANSWER_TEXT_H_
#define TANDEM_TOOLS_ANSWER_TEXT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "tandem/answer_reader.h"
#include "tandem/completion.h"
#include "tandem/detokenizer.h"
#include "tandem/request.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Whether standard output takes colours: a terminal that is not dumb, unless $NO_COLOR is set to
// something (https://no-color.org).
bool StandardOutputTakesColours();

// Paints text for a terminal: text of the draft in green, reasoning dim. Control characters other
// than line ends and tabs are left out, so that a model cannot command the terminal.
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
  Ink ink_{};  // of the terminal
};

// An answer as it is shown, with reasoning and calls apart from the content:
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
  // With colours: of the answer to `request`, whose prompt is ids. The text is that of its tokens,
  // stop strings included. `tokenizer` must outlive this object.
  AnswerText(const AnswerReader::Options& reading, const Tokenizer* tokenizer,
             const Request& request);
  // A whole answer, plain.
  static std::string Whole(const AnswerReader::Options& reading, std::string_view text);

  std::string Next(const Piece& piece);
  // Ends the answer: returns the text that was held back, and the terminal's own colour.
  std::string End();

 private:
  enum class Part { kNone, kReasoning, kContent, kCall };
  // Appends what tells `part` from the one before.
  void Begin(Part part, std::string* out);
  void Append(const AnswerDelta& delta, bool is_drafted, std::string* out);
  void Write(std::string_view text, ProvenanceColours::Ink ink, std::string* out);

  AnswerReader reader_;
  std::unique_ptr<Detokenizer> detokenizer_{};  // with colours
  ProvenanceColours colours_{};
  Part part_ = Part::kNone;
};

// Adds "reasoning", null without any, "content" and "tool_calls", [{"name": ..., "arguments":
// "{...}"}, ...].
void AddToJson(const AnswerDelta& answer, nlohmann::json* json);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ANSWER_TEXT_H_
