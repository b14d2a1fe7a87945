#ifndef TANDEM_INCLUDE_TANDEM_LOGPROBS_H_
#define TANDEM_INCLUDE_TANDEM_LOGPROBS_H_

#include <utility>
#include <vector>

#include "tandem/types.h"

namespace tandem {

// Which log-probabilities to report with a token.
struct LogprobOptions {
  int num_top = -1;        // -1 for none at all; 0 for the token's own
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
