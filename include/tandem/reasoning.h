// The reasoning that models write before their answer, between two markers.
#ifndef TANDEM_INCLUDE_TANDEM_REASONING_H_
#define TANDEM_INCLUDE_TANDEM_REASONING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/answer_delta.h"
#include "tandem/chat_input.h"
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

  // The format of a model whose template mentions its markers, or whose vocabulary has a token for
  // each.
  static std::optional<ReasoningFormat> Of(const ChatTemplate& chat, const Tokenizer& tokenizer);
  // The markers that are special tokens. Constraints cannot contain them, and texts show them only
  // if they are in the request's `shown_special_tokens`.
  std::vector<TokenId> SpecialTokenIds(const Tokenizer& tokenizer) const;
};

// The state of the reasoning at an answer's first token.
enum class ReasoningStart {
  kNone,       // reasoning is over: everything is content
  kMayBegin,   // reasoning may begin with a marker
  kInside,     // the prompt ends with the first marker; the answer may repeat it
  kContinues,  // the prompt ends within the reasoning
};

// Returns the state that the end of the prompt implies.
ReasoningStart ReasoningStartOf(const ReasoningFormat& format, const Tokenizer& tokenizer,
                                absl::Span<const TokenId> prompt);

// Separates reasoning from the content that follows it, however the text is cut into pieces. White
// space around either is dropped, except at the end of the content. Without an end marker
// everything is reasoning; without a begin marker everything is content. Thread-compatible.
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

  // Whether there was reasoning, even if it was empty.
  bool has_reasoned() const { return has_reasoned_; }
  // The state for a splitter that continues from here.
  ReasoningStart StartOfRest() const;
  // Whether all further text is content.
  bool is_over() const { return place_ == Place::kAfter || place_ == Place::kContent; }

 private:
  enum class Place {
    kBefore,  // before the first marker
    kReasoning,
    kAfter,  // after the last marker, before content
    kContent,
  };
  void Read(char byte, AnswerDelta* delta);
  void ReadBefore(char byte, AnswerDelta* delta);
  void ReadReasoning(char byte, AnswerDelta* delta);
  void EmitReasoning(std::string_view text, AnswerDelta* delta);
  // Continues when the text does not begin with the first marker.
  void ContinueWithoutMarker(AnswerDelta* delta);

  const Options options_;
  Place place_ = Place::kBefore;
  std::string spaces_{};  // held back
  std::string marker_{};  // the beginning of a marker, after the spaces
  bool has_reasoned_ = false;
  bool has_emitted_ = false;  // part of the reasoning was returned
};

// A limit on the tokens of an answer's reasoning (docs/thinking_budget.md).
struct ThinkingBudget {
  int max_tokens = 0;  // after the first marker; 0 ends the reasoning at once
  ReasoningSplitter::Options markers{};
};

// Returns the limit on the reasoning of the answer to `input`: its `max_thinking_tokens`, or 0 if
// its reasoning effort is "none" and the model's template does not read the effort, but a variable
// that switches reasoning on and off. INVALID_ARGUMENT naming `max_thinking_tokens` if the input
// has one and the model does not mark its reasoning: `format` is ReasoningFormat::Of's.
absl::StatusOr<std::optional<int>> ThinkingLimitOf(const ChatInput& input, const ChatTemplate& chat,
                                                   const std::optional<ReasoningFormat>& format);

// Counts the tokens of an answer from its first up to the last marker; 0 without reasoning.
// `detokenizer` must be at the answer's beginning.
int64_t CountReasoningTokens(const ReasoningSplitter::Options& options, Detokenizer* detokenizer,
                             absl::Span<const TokenId> answer);

// Returns the constraint on a whole answer whose part after the reasoning must match `constraint`.
// REQUIRES: the markers are not special tokens, and the answer may begin with reasoning.
OutputConstraint AfterReasoning(const ReasoningSplitter::Options& options,
                                OutputConstraint constraint);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_REASONING_H_
