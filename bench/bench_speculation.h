// Measures the gain of speculation over plain decoding of the same prompts by the same engine.
#ifndef TANDEM_BENCH_BENCH_SPECULATION_H_
#define TANDEM_BENCH_BENCH_SPECULATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "tandem/engine.h"
#include "tools/prompt_file.h"
#include "tools/table.h"
#include "verify/verifier.h"

namespace tandem {

struct SpeculationBenchmarkOptions {
  std::vector<Prompt> prompts;
  std::vector<int> draft_tokens;   // k of each run; kAutoDraftTokens too
  std::vector<int> batches = {1};  // sequences at a time; at most the engine's max_batch
  int max_tokens = 128;
  bool ignore_eos = true;                 // every sequence has max_tokens
  std::vector<TokenId> stop_tokens = {};  // in addition to the model's own, where it may end
  float temperature = 0.0f;
  int repeat = 4;  // pairs of a plain and a speculative pass over all prompts
  // The chance by which the engine's judge (SyntheticJudge) keeps each draft
  // token: then every pass has a seed of its own for the coins, and its tokens are nobody's.
  std::optional<double> synthetic_acceptance = {};
};

// Times of parts of a round are means over the rounds of a pass, the first of each sequence left
// out, because that one reads the prompt; of the passes' means the median. With few rounds and a
// busy machine their noise is larger than they are.
struct SpeculationRun {
  int draft_tokens = 0;
  int batch = 0;
  Spread plain_tokens_per_second;  // prompts included
  Spread tokens_per_second;
  Spread ratio;         // of the two passes of a pair, prompts included
  Spread decode_ratio;  // of their times per token after the first round: what is predicted below
  double acceptance_rate = 0.0;
  double tokens_per_round = 0.0;
  double drafted_per_round = 0.0;
  double plain_step_ms = 0.0;
  double draft_step_ms = 0.0;  // of one draft token
  double verify_ms = 0.0;      // of a round
  double other_ms = 0.0;       // of a round: scheduling, sampling's bookkeeping, text
  // Whether both passes of every pair gave the same tokens; nothing where a coin chose them.
  std::optional<bool> identical = {};

  // c: the cost of a draft step in plain steps of the target.
  double cost_ratio() const { return draft_step_ms / plain_step_ms; }
  // What the measured acceptance would give if verification cost no more than a plain step:
  // E / (1 + k c), E tokens and k draft tokens per round. Leviathan, Kalman and Matias, "Fast
  // inference from transformers via speculative decoding" (2023), theorem 3.8.
  double predicted_ratio() const {
    return tokens_per_round / (1.0 + drafted_per_round * cost_ratio());
  }
  // The same for the rate that was forced, whatever the coins happened to show:
  // (1 - a^(k + 1)) / ((1 - a) (1 + k c)). Nothing without one, or where k changes.
  std::optional<double> expected_ratio = {};
};

struct PlainDecoding {
  Spread tokens_per_second;  // prompts included
  double step_ms = 0.0;      // of a token after the first
};

struct SpeculationBenchmark {
  PlainDecoding plain;  // at batch 1
  std::vector<SpeculationRun> runs;
};

// Number of passes that RunSpeculationBenchmark makes.
int NumPasses(const SpeculationBenchmarkOptions& options);

// For every batch and k, pairs of passes in turned order (plain, speculative, speculative, plain),
// the k in turns, so that a drift of the machine's speed falls on all alike. `engine` must have no
// prefix cache. `on_pass` is called after every pass.
absl::StatusOr<SpeculationBenchmark> RunSpeculationBenchmark(
    const SpeculationBenchmarkOptions& options, Engine* engine, absl::FunctionRef<void()> on_pass);

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

#endif  // TANDEM_BENCH_BENCH_SPECULATION_H_
