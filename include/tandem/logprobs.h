#ifndef TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
#define TANDEM_INCLUDE_TANDEM_LOGPROBS_H_

#include <utility>
#include <vector>

#include "tandem/parameter.h"
#include "tandem/types.h"

namespace tandem {

// How many likely tokens log-probabilities can be reported of; -1 for none at all.
inline constexpr Limits kLogprobLimits = {.low = 0, .high = 100, .unset = -1};

// Which log-probabilities to report with a token.
struct LogprobOptions {
  int num_top = -1;        // kLogprobLimits; 0 for the token's own
  bool processed = false;  // of the distribution drawn from, rather than of the raw logits
};

// Natural log-probabilities of one row.
struct TokenLogprobs {
  TokenId id = 0;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;  // the most likely first, of equals the lowest id
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
