// What models think before they answer, between two markers in an answer's text.
#ifndef TANDEM_CHAT_REASONING_H_
#define TANDEM_CHAT_REASONING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "chat/answer_delta.h"
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

  // Of a model whose template mentions such markers, or whose vocabulary has a token for each.
  static std::optional<ReasoningFormat> Of(const ChatTemplate& chat, const Tokenizer& tokenizer);
  // Whether a marker is a special token, which constraints cannot have.
  bool IsSpecial(const Tokenizer& tokenizer) const;
};

// Where an answer stands to its reasoning at its first token.
enum class ReasoningStart {
  kNone,      // behind it: all is content
  kMayBegin,  // in front of a marker, if one comes
  kInside,    // the prompt ends with the first marker; the answer may say it again
  kGoesOn,    // the prompt ends within the reasoning
};

// By the end of the prompt. It may leave off within what somebody has said, which then counts.
ReasoningStart ReasoningStartOf(const ReasoningFormat& format, const Tokenizer& tokenizer,
                                absl::Span<const TokenId> prompt);

// Parts reasoning and what follows it, however the text is cut into pieces. White space around
// either is left out, but at the end of what follows. Without a marker behind it all is reasoning;
// without one in front all is content. Thread-compatible.
class ReasoningSplitter {
 public:
  struct Options {
    ReasoningFormat format{};
    ReasoningStart start = ReasoningStart::kMayBegin;
  };
  explicit ReasoningSplitter(const Options& options);

  // Deltas without calls.
  AnswerDelta Push(std::string_view text);
  // At the end of the text: what was held back.
  AnswerDelta Finish();

  // Whether there was reasoning, be it empty.
  bool has_reasoned() const { return has_reasoned_; }
  // Whether only content can come any more.
  bool is_over() const { return place_ == Place::kBehind || place_ == Place::kContent; }

 private:
  enum class Place {
    kInFront,  // where the first marker may come
    kReasoning,
    kBehind,  // the last marker, in front of content
    kContent,
  };
  void Read(char byte, AnswerDelta* delta);
  void ReadInFront(char byte, AnswerDelta* delta);
  void ReadReasoning(char byte, AnswerDelta* delta);
  void LetOutReasoning(std::string_view text, AnswerDelta* delta);
  // The first marker will not come.
  void GoOnWithoutMarker(AnswerDelta* delta);

  const Options options_;
  Place place_ = Place::kInFront;
  std::string spaces_{};  // held back
  std::string marker_{};  // the part of a marker that has come, behind them
  bool has_reasoned_ = false;
  bool has_let_out_ = false;  // some of the reasoning
};

// The tokens of an answer from its first up to the last marker; 0 if it does not reason.
// `detokenizer`: at the answer's beginning.
int64_t CountReasoningTokens(const ReasoningSplitter::Options& options, Detokenizer* detokenizer,
                             absl::Span<const TokenId> answer);

// What holds the whole answer where `constraint` is to hold what follows the reasoning. REQUIRES:
// markers are not special, and the answer may begin with reasoning.
OutputConstraint BehindReasoning(const ReasoningSplitter::Options& options,
                                 OutputConstraint constraint);

}  // namespace tandem

#endif  // TANDEM_CHAT_REASONING_H_
