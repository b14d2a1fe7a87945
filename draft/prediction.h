#ifndef TANDEM_DRAFT_PREDICTION_H_
#define TANDEM_DRAFT_PREDICTION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// A predicted text, its tokens and an index of their runs. Building it sorts the tokens four times;
// finding a place takes four binary searches, whatever the text says. Immutable.
class PredictedText {
 public:
  PredictedText(std::string text, std::vector<TokenId> tokens);

  const std::string& text() const { return text_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // The place after the longest run of the last tokens of `output`, of kLongestRun at most; of
  // equal runs the first at or after `next`, else the last before it. 0 if no run of kMinRun is
  // there.
  size_t Find(absl::Span<const TokenId> output, size_t next) const;

 private:
  // Fewer tokens stand in many places.
  static constexpr size_t kMinRun = 3;
  static constexpr size_t kLongestRun = 6;

  absl::Span<const TokenId> RunBefore(size_t place, size_t length) const {
    return absl::MakeConstSpan(tokens_).subspan(place - length, length);
  }

  std::string text_;
  std::vector<TokenId> tokens_;
  // For each length of run from kMinRun on: the places after its runs, by run, then by place.
  std::array<std::vector<uint32_t>, kLongestRun - kMinRun + 1> places_;
};

// What somebody expects an output to be, followed along: an edit of a text says most of it again.
// Where the output leaves the prediction it is found again by what was said last.
// Thread-compatible.
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::shared_ptr<const PredictedText> text) : text_(std::move(text)) {}

  // The predicted tokens behind `output`, which grows from call to call; none where the two have
  // parted.
  absl::Span<const TokenId> Behind(absl::Span<const TokenId> output);

 private:
  std::shared_ptr<const PredictedText> text_;  // null for none
  size_t next_ = 0;                            // the place of the output's next token
  bool has_parted_ = false;
  size_t num_followed_ = 0;  // of the output
};

// Tokenises predicted texts, each once for all the sequences of its request: a text that is in use
// is found again. Thread-safe.
class PredictedTexts {
 public:
  // The bytes that are read of a text for an output of at most `max_output` tokens, 8 for each. The
  // output may leave out 1,024 tokens of the text.
  static constexpr size_t MaxBytes(int max_output) { return (size_t{1024} + max_output) * 8; }

  // Tokenizer::Encode's errors.
  absl::StatusOr<std::shared_ptr<const PredictedText>> Get(const Tokenizer& tokenizer,
                                                           std::string_view text, int max_output);

 private:
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<const PredictedText>> texts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_PREDICTION_H_
