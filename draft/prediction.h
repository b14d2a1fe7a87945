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
#include "kvcache/kv_sequence.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// A predicted text, its tokens and an index of their runs. Building it sorts the tokens four times.
// Find() takes four binary searches, whatever the text. Immutable.
class PredictedText {
 public:
  PredictedText(std::string text, std::vector<TokenId> tokens);

  const std::string& text() const { return text_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Finds the longest run of at most kLongestRun last tokens of `output` in the predicted tokens,
  // and returns the place after it. Among equal runs: the first place at or after `next`, otherwise
  // the last before it. Returns 0 without a run of at least kMinRun tokens.
  size_t Find(absl::Span<const TokenId> output, size_t next) const;

 private:
  // Shorter runs occur in too many places.
  static constexpr size_t kMinRun = 3;
  static constexpr size_t kLongestRun = 6;

  absl::Span<const TokenId> RunBefore(size_t place, size_t length) const {
    return absl::MakeConstSpan(tokens_).subspan(place - length, length);
  }

  std::string text_;
  std::vector<TokenId> tokens_;
  // For each run length from kMinRun on: the places after runs, sorted by run, then by place.
  std::array<std::vector<uint32_t>, kLongestRun - kMinRun + 1> places_;
};

// Follows an output along a predicted text. Edits of a text, for example, repeat most of it. Where
// the output leaves the prediction, its last tokens find the place where it continues.
// Thread-compatible.
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::shared_ptr<const PredictedText> text) : text_(std::move(text)) {}

  // Returns the predicted tokens after `output`, which grows from call to call. Empty where the
  // output has left the prediction.
  absl::Span<const TokenId> ContinuationOf(absl::Span<const TokenId> output);

 private:
  std::shared_ptr<const PredictedText> text_;  // null without a prediction
  size_t next_ = 0;                            // the predicted place of the output's next token
  bool has_parted_ = false;
  size_t num_followed_ = 0;  // output tokens followed so far
};

// Tokenises predicted texts, each once for all sequences of its request: texts in use are shared
// among requests with the same salt. Thread-safe.
class PredictedTexts {
 public:
  // The number of bytes read of a text for an output of at most `max_output` tokens: 8 for each
  // token, plus 1,024 tokens of the text that the output may leave out.
  static constexpr size_t MaxBytes(int max_output) { return (size_t{1024} + max_output) * 8; }

  // Returns the tokenised text, cut to MaxBytes(max_output). Errors are those of Tokenizer::Encode.
  absl::StatusOr<std::shared_ptr<const PredictedText>> Get(const Tokenizer& tokenizer,
                                                           std::string_view text, int max_output,
                                                           const CacheSalt& salt = nullptr);

 private:
  absl::Mutex mutex_;
  struct Known {
    CacheSalt salt;
    std::weak_ptr<const PredictedText> text;
  };

  std::vector<Known> texts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_PREDICTION_H_
