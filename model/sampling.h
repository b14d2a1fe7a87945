// Turns a row of logits into a token. One implementation serves plain decoding, verified rows, the
// bonus row and the draft. docs/sampling.md has the order of the steps and their edge cases.
#ifndef TANDEM_MODEL_SAMPLING_H_
#define TANDEM_MODEL_SAMPLING_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "kernels/backend.h"
#include "kernels/row_tasks.h"
#include "model/token_history.h"
#include "tandem/logprobs.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

// A distribution over a vocabulary.
struct Distribution {
  // Greedy: the token with all of the mass; `probs` is empty. Otherwise -1.
  TokenId only = -1;
  std::vector<float> probs = {};  // [vocab], summing to 1 up to rounding
  // The number of probabilities on a device (model/device_sampling.h), in place of `probs`, which
  // is empty then. They are valid in the round that made them. 0 if the row is not on a device.
  int device_size = 0;
  std::shared_ptr<const Buffer> device = nullptr;
};

// Applies `params` to `logits` for a sequence with this history (may be null if
// params.needs_history() is false). Counts, biases and ending tokens beyond the row are ignored: a
// draft's row may be shorter than the target's. INTERNAL if the row contains NaN or +inf, or no
// finite value: the model's fault. INVALID_ARGUMENT if `params` turn it into such a row, or leave
// no token that may come next.
absl::Status MakeDistribution(absl::Span<const float> logits, const SamplingParams& params,
                              const TokenHistory* history, Distribution* distribution);

// Returns MakeDistribution's status for a row in this state.
absl::Status StatusOf(RowState state);

// Returns the index of the largest value, the lowest among equals. -1 if there is NaN or +inf, or
// no finite value.
TokenId ArgMax(absl::Span<const float> values);

// Draws a token with probability proportional to `weights` (nonnegative): the winner of an
// exponential race, argmin of E_v / weights[v] with standard exponential noise E_v at `place`. This
// equals the Gumbel argmax of log weights. Ties go to the lowest id. The weights need not be
// normalised. If all weights are zero, returns -1.
TokenId DrawFromWeights(absl::Span<const float> weights, const RandomSource& random,
                        const RandomPlace& place);

// The same for a distribution. A greedy one does not use noise.
TokenId Draw(const Distribution& distribution, const RandomSource& random,
             const RandomPlace& place);

// The log-softmax of a row of raw logits, which must outlive it.
class RawLogprobs {
 public:
  explicit RawLogprobs(absl::Span<const float> logits);
  // NaN if the row has a NaN or +inf, or no finite value.
  float Of(TokenId id) const { return static_cast<float>(logits_[id] - log_normalizer_); }

 private:
  absl::Span<const float> logits_;
  double log_normalizer_;
};

// Returns the log-softmax of the raw `logits` at `id`, and the `num_top` largest ones.
TokenLogprobs LogprobsOf(absl::Span<const float> logits, TokenId id, int num_top);
// The same for the distribution that tokens are drawn from. Removed tokens have -infinity and are
// not listed.
TokenLogprobs LogprobsOf(const Distribution& distribution, TokenId id, int num_top);

}  // namespace tandem

#endif  // TANDEM_MODEL_SAMPLING_H_
