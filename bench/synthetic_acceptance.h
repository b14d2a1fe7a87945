// Acceptance by the toss of a coin, to measure an engine apart from what its draft is worth.
#ifndef TANDEM_BENCH_SYNTHETIC_ACCEPTANCE_H_
#define TANDEM_BENCH_SYNTHETIC_ACCEPTANCE_H_

#include "verify/verifier.h"

namespace tandem {

// A judge that keeps each draft token with chance `acceptance`, by the coin of its place, which
// depends on the request's seed and on nothing that was said. It looks at the rows that token
// verification looks at, and draws what follows as that does. Tokens outside the target's
// vocabulary, [0, vocab_size), are rejected, as they are always. The output is not the target's.
// REQUIRES: acceptance in [0, 1].
JudgeFunction SyntheticJudge(double acceptance, int vocab_size);

// Tokens per round of k draft tokens, each kept with chance `acceptance` until the first that is
// not: (1 - a^(k + 1)) / (1 - a). Leviathan, Kalman and Matias, "Fast inference from transformers
// via speculative decoding" (2023), equation 1.
double ExpectedTokensPerRound(double acceptance, int draft_tokens);

}  // namespace tandem

#endif  // TANDEM_BENCH_SYNTHETIC_ACCEPTANCE_H_
