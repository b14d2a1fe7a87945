#ifndef TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
#define TANDEM_INCLUDE_TANDEM_LOGPROBS_H_

#include <utility>
#include <vector>

#include "tandem/parameter.h"
#include "tandem/types.h"

namespace tandem {

// How many of the most likely tokens to report log-probabilities for; -1 reports no
// log-probabilities.
inline constexpr Limits kLogprobLimits = {.low = 0, .high = 100, .unset = -1};

// Which log-probabilities to report with a token.
struct LogprobOptions {
  int num_top = -1;        // kLogprobLimits; 0 reports only the token's own
  bool processed = false;  // from the distribution sampled from, rather than the raw logits
};

// Natural log-probabilities of one row.
struct TokenLogprobs {
  TokenId id = 0;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;  // most likely first; ties by lowest id
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
