// From a row of logits to a token: one implementation for plain decoding, verified rows, the bonus
// row and the draft. The order of the steps and their edges: docs/sampling.md.
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
  // Greedy: all mass on this token, and `probs` is empty. Otherwise -1.
  TokenId only = -1;
  std::vector<float> probs = {};  // [vocab], summing to 1 up to rounding
  // In place of `probs`, which is empty: as many on a device, as long as the round that they were
  // made in (model/device_sampling.h). 0 for none.
  int device_size = 0;
  std::shared_ptr<const Buffer> device = nullptr;
};

// The distribution that `params` make of `logits` for a sequence with this history (null when
// params.needs_history() is false). Counts, biases and ending tokens beyond the row mean nothing: a
// draft's row may be shorter than the target's. INTERNAL if the row holds a NaN or +inf, or nothing
// finite: the model's fault. INVALID_ARGUMENT if `params` make one of it that does, or leave
// nothing of it that may come next.
absl::Status MakeDistribution(absl::Span<const float> logits, const SamplingParams& params,
                              const TokenHistory* history, Distribution* distribution);

// What MakeDistribution says of such a row.
absl::Status StatusOf(RowState state);

// The index of the largest value, of equals the lowest; -1 if there is a NaN or +inf, or nothing
// finite.
TokenId ArgMax(absl::Span<const float> values);

// A token drawn with probability proportional to `weights` (nonnegative, not all zero): the winner
// of an exponential race, argmin of E_v / weights[v] with E_v standard exponential noise at
// `place`, which is the Gumbel argmax of log weights. Ties go to the lowest id; no normaliser
// enters. -1 if all weights are zero.
TokenId DrawFromWeights(absl::Span<const float> weights, const RandomSource& random,
                        const RandomPlace& place);

// The same for a distribution; a greedy one needs no noise.
TokenId Draw(const Distribution& distribution, const RandomSource& random,
             const RandomPlace& place);

// Log-softmax of the raw `logits` at `id`, and the `num_top` largest.
TokenLogprobs LogprobsOf(absl::Span<const float> logits, TokenId id, int num_top);
// The same of a distribution that is drawn from; removed tokens have -infinity and are not listed.
TokenLogprobs LogprobsOf(const Distribution& distribution, TokenId id, int num_top);

}  // namespace tandem

#endif  // TANDEM_MODEL_SAMPLING_H_
