// Measures the speed-up of speculation over plain decoding of the same prompts by the same engine.
#ifndef TANDEM_TOOLS_BENCH_BENCH_SPECULATION_H_
#define TANDEM_TOOLS_BENCH_BENCH_SPECULATION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tandem/engine.h"
#include "tools/prompt_file.h"
#include "tools/table.h"
#include "verify/verifier.h"

namespace tandem {

struct SpeculationBenchmarkOptions {
  std::vector<Prompt> prompts;
  std::vector<int> draft_tokens;   // k of each run; may be kAutoDraftTokens
  std::vector<int> batches = {1};  // sequences at a time; at most the engine's max_batch
  int max_tokens = 128;
  bool ignore_eos = true;                 // every sequence has max_tokens tokens
  std::vector<TokenId> stop_tokens = {};  // in addition to the model's own, without ignore_eos
  float temperature = 0.0f;
  int repeat = 4;  // pairs of a plain and a speculative pass over all prompts
  // The probability with which the engine's judge (SyntheticJudge) keeps each draft token. Every
  // request then has its own seed, and the tokens are not the target's output.
  std::optional<double> synthetic_acceptance = {};
};

// The time of a part of a round is the median over the passes of a pass's mean over its rounds. The
// first round of each sequence is left out, because it reads the prompt. With few rounds and a busy
// machine the noise can exceed the times.
struct SpeculationRun {
  int draft_tokens = 0;
  int batch = 0;
  int num_pairs = 0;               // of passes
  Spread plain_tokens_per_second;  // prompts included
  Spread tokens_per_second;
  Spread ratio;         // of the speeds of the two passes of a pair, prompts included
  Spread decode_ratio;  // of their times per token after the first round; see predicted_ratio()
  double acceptance_rate = 0.0;
  double tokens_per_round = 0.0;
  double drafted_per_round = 0.0;
  double plain_step_ms = 0.0;
  double draft_step_ms = 0.0;  // per draft token
  double verify_ms = 0.0;      // per round
  double other_ms = 0.0;       // per round: scheduling, bookkeeping of sampling, text
  // Whether both passes of every pair gave the same tokens; nullopt with synthetic acceptance.
  std::optional<bool> identical = {};

  // c: the cost of a draft step in plain steps of the target.
  double cost_ratio() const { return draft_step_ms / plain_step_ms; }
  // The decode ratio for the measured acceptance if verification cost the same as a plain step:
  // E / (1 + k c), E tokens and k draft tokens per round. Leviathan, Kalman and Matias, "Fast
  // inference from transformers via speculative decoding" (2023), theorem 3.8.
  double predicted_ratio() const {
    return tokens_per_round / (1.0 + drafted_per_round * cost_ratio());
  }
  // The same for the expected number of tokens with synthetic acceptance a:
  // (1 - a^(k + 1)) / ((1 - a) (1 + k c)). Nullopt without synthetic acceptance, or if k varies.
  std::optional<double> expected_ratio = {};
};

struct PlainDecoding {
  Spread tokens_per_second;  // prompts included
  double step_ms = 0.0;      // per token after the first
};

struct SpeculationBenchmark {
  std::optional<PlainDecoding> plain;  // at batch 1; nullopt if that was not measured
  std::vector<SpeculationRun> runs;
};

struct SpeculationCallbacks {
  // Called before each group of sequences of a pass with k draft tokens, 0 for plain decoding.
  std::function<absl::Status(int draft_tokens, int batch)> before_group;
  // Called several times a second while a group runs.
  std::function<absl::Status()> check;
  // Called with each run as soon as it is measured.
  std::function<void(const SpeculationRun&)> on_run;
};

// Returns the number of groups that RunSpeculationBenchmark runs.
int64_t NumGroups(const SpeculationBenchmarkOptions& options);

// Runs pairs of passes for every batch and k, in alternating order (plain, speculative,
// speculative, plain) and alternating between the k, so that a drift of the machine's speed affects
// all equally. An error of the engine or of a callback ends it; then *result has what the complete
// pairs until then give. REQUIRES: `engine` does not have a prefix cache.
absl::Status RunSpeculationBenchmark(const SpeculationBenchmarkOptions& options, Engine* engine,
                                     const SpeculationCallbacks& callbacks,
                                     SpeculationBenchmark* result);

// Returns a judge that keeps each draft token with probability `acceptance`. It decides by the
// random number of the token's place, which depends only on the request's seed. It uses the same
// rows as the token rule, and draws the next token in the same way. Tokens outside of the target's
// vocabulary, [0, vocab_size), are always rejected. The output is not the target's. REQUIRES:
// `acceptance` is in [0, 1].
JudgeFunction SyntheticJudge(double acceptance, int vocab_size);

// Returns the expected number of tokens per round of k draft tokens, each kept with probability a
// until the first rejection: (1 - a^(k + 1)) / (1 - a). Leviathan, Kalman and Matias, "Fast
// inference from transformers via speculative decoding" (2023), equation 1.
double ExpectedTokensPerRound(double acceptance, int draft_tokens);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_SPECULATION_H_
