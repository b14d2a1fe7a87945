#ifndef TANDEM_DRAFT_POLICY_ROUND_GAIN_H_
#define TANDEM_DRAFT_POLICY_ROUND_GAIN_H_

#include <algorithm>

#include "absl/functional/function_ref.h"

namespace tandem {

// The most draft tokens that BestRoundGain considers.
inline constexpr int kMostGainTokens = 8;

// Expected tokens of a round over its cost, both relative to plain decoding, at the best number of
// draft tokens, before anything was measured. `step`: of the draft model, in plain passes.
// `survival(k)`: the chance that the first k tokens are kept, asked for 1, 2, and so on.
inline double BestRoundGain(double step, absl::FunctionRef<double(int)> survival) {
  constexpr double kRowOfVerification = 0.05;  // what a row beyond the first costs a plain pass
  double tokens = 1.0;
  double best = 1.0;
  for (int k = 1; k <= kMostGainTokens; ++k) {
    tokens += survival(k);
    best = std::max(best, tokens / (1.0 + k * (step + kRowOfVerification)));
  }
  return best;
}

}  // namespace tandem

#endif  // TANDEM_DRAFT_POLICY_ROUND_GAIN_H_
