// What models think before they answer, between two markers in an answer's text.
#ifndef TANDEM_INCLUDE_TANDEM_REASONING_H_
#define TANDEM_INCLUDE_TANDEM_REASONING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "tandem/answer_delta.h"
#include "tandem/chat_template.h"
#include "tandem/detokenizer.h"
#include "tandem/output_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// How a family of models marks its reasoning.
struct ReasoningFormat {
  std::string_view begin = "<think>";
  std::string_view end = "</think>";

  // The format of a model whose template mentions such markers, or whose vocabulary has a token for
  // each.
  static std::optional<ReasoningFormat> Of(const ChatTemplate& chat, const Tokenizer& tokenizer);
  // Its markers that are special tokens: constraints cannot have them, and texts show them only
  // where a request has them in `shown_special_tokens`.
  std::vector<TokenId> SpecialTokenIds(const Tokenizer& tokenizer) const;
};

// Where an answer stands to its reasoning at its first token.
enum class ReasoningStart {
  kNone,      // after it: all is content
  kMayBegin,  // before a marker, if one comes
  kInside,    // the prompt ends with the first marker; the answer may say it again
  kGoesOn,    // the prompt ends within the reasoning
};

// Decided by the end of the prompt.
ReasoningStart ReasoningStartOf(const ReasoningFormat& format, const Tokenizer& tokenizer,
                                absl::Span<const TokenId> prompt);

// Parts reasoning and what follows it, however the text is cut into pieces. White space around
// either is left out, except at the end of what follows. Without a marker after it all is
// reasoning; without one before it all is content. Thread-compatible.
//
//   ReasoningSplitter splitter({.format = *format, .start = ReasoningStart::kMayBegin});
//   AnswerDelta answer = splitter.Push("<think>Easy.</think>4");  // reasoning, then content
//   answer.Append(splitter.Finish());
class ReasoningSplitter {
 public:
  struct Options {
    ReasoningFormat format{};
    ReasoningStart start = ReasoningStart::kMayBegin;
  };
  explicit ReasoningSplitter(const Options& options);

  // Deltas without calls.
  AnswerDelta Push(std::string_view text);
  // Ends the text: returns the part that was held back.
  AnswerDelta Finish();

  // Whether there was reasoning, be it empty.
  bool has_reasoned() const { return has_reasoned_; }
  // How text that goes on from here starts.
  ReasoningStart StartOfRest() const;
  // Whether only content can come any more.
  bool is_over() const { return place_ == Place::kAfter || place_ == Place::kContent; }

 private:
  enum class Place {
    kBefore,  // where the first marker may come
    kReasoning,
    kAfter,  // the last marker, before content
    kContent,
  };
  void Read(char byte, AnswerDelta* delta);
  void ReadBefore(char byte, AnswerDelta* delta);
  void ReadReasoning(char byte, AnswerDelta* delta);
  void LetOutReasoning(std::string_view text, AnswerDelta* delta);
  // The first marker will not come.
  void GoOnWithoutMarker(AnswerDelta* delta);

  const Options options_;
  Place place_ = Place::kBefore;
  std::string spaces_{};  // held back
  std::string marker_{};  // the part of a marker that came after them
  bool has_reasoned_ = false;
  bool has_let_out_ = false;  // some of the reasoning
};

// The tokens of an answer from its first up to the last marker; 0 if it does not reason.
// `detokenizer`: at the answer's beginning.
int64_t CountReasoningTokens(const ReasoningSplitter::Options& options, Detokenizer* detokenizer,
                             absl::Span<const TokenId> answer);

// The constraint on a whole answer whose part after the reasoning is to keep to `constraint`.
// REQUIRES: markers are not special, and the answer may begin with reasoning.
OutputConstraint AfterReasoning(const ReasoningSplitter::Options& options,
                                OutputConstraint constraint);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_REASONING_H_
