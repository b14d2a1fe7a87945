#ifndef TANDEM_DRAFT_PREDICTION_H_
#define TANDEM_DRAFT_PREDICTION_H_

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"

namespace tandem {

// What somebody expects an output to be, followed along: an edit of a text says most of it again.
// Where the output leaves the prediction it is found again by what was said last.
// Thread-compatible.
class Prediction {
 public:
  Prediction() = default;
  explicit Prediction(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}

  // The predicted tokens behind `output`, which grows from call to call; none where the two have
  // parted.
  absl::Span<const TokenId> Behind(absl::Span<const TokenId> output);

 private:
  void Resume(absl::Span<const TokenId> output);

  std::vector<TokenId> tokens_;
  size_t next_ = 0;  // the place of the output's next token
  bool has_parted_ = false;
  size_t num_followed_ = 0;  // of the output
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_PREDICTION_H_
