#ifndef TANDEM_PROOF_LAW_TRIALS_H_
#define TANDEM_PROOF_LAW_TRIALS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/sampling.h"
#include "proof/proof_world.h"
#include "proof/remembered_model.h"
#include "proof/statistics.h"
#include "tandem/lossless_proof.h"
#include "tandem/round_stats.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

// Computes the distribution after `prompt` and `output`, where `output` counts as drafted (which
// matters to a head only). Uses at most the first `vocab_size` logits, and the sampling of decoding
// with the counts of these tokens.
absl::Status MakeDistributionAfter(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab_size, Distribution* row);

// The exact law of the target's next tokens after a prompt. Its cells have known probabilities that
// sum to 1, whatever the vocabulary. The tree of continuations is expanded where it is most likely.
// Each expanded path of full length is a cell, and so is, for each expanded node, leaving the tree
// there.
class TargetLaw {
 public:
  struct Options {
    int length = 1;                      // tokens
    double min_probability = 1.0 / 256;  // of a path that is expanded
  };
  static absl::StatusOr<TargetLaw> Expand(RememberedRows* target, absl::Span<const TokenId> prompt,
                                          const SamplingParams& sampling, const Options& options);

  int length() const { return length_; }
  absl::Span<const double> probabilities() const { return probabilities_; }  // [cells]

  // Returns the cell of these tokens, or -1 if it depends on further tokens. Never -1 from length()
  // tokens on.
  int CellOf(absl::Span<const TokenId> output) const;

 private:
  struct Node {
    absl::flat_hash_map<TokenId, int> children;  // node indices; cell indices at the last token
    int left_cell = 0;                           // the cell of all tokens that are not children
  };
  int length_ = 0;
  std::vector<Node> nodes_;  // [0] is the root
  std::vector<double> probabilities_;
};

// A case that is generated many times.
struct LawCase {
  std::vector<TokenId> prompt{};
  ProofSampling sampling{};
  AcceptanceRule rule = AcceptanceRule::kToken;
  int draft_tokens = 3;  // 0: plain decoding
  int length = 3;        // number of tokens to compare
};

// Runs seeded generations from one prompt and counts their first tokens in the cells of the exact
// law. The prompt is read once, and each generation starts from a fork. Thread-compatible.
class LawTrials {
 public:
  // `law` must match the prompt, sampling and length of `law_case`. Generation i draws from
  // sequence i of `seeds`.
  LawTrials(const ProofWorld& world, std::shared_ptr<const TargetLaw> law, LawCase law_case,
            RandomSource seeds, int batch);

  // Runs `runs` more generations.
  absl::Status Run(int64_t runs);

  const LawCase& law_case() const { return case_; }
  int64_t runs() const { return finished_; }
  const RoundStats& stats() const { return stats_; }
  Fit fit() const { return GTest(counts_, law_->probabilities()); }

 private:
  int LengthToFork() const;
  absl::Status ReadPrompt();

  ProofRounds rounds_;
  std::shared_ptr<const TargetLaw> law_;
  LawCase case_;
  RandomSource seeds_;
  int batch_;
  KvSequence prompt_kv_;  // the first LengthToFork() tokens of the prompt, once read
  int64_t started_ = 0;
  int64_t finished_ = 0;
  std::vector<int64_t> counts_;  // [cells]
  RoundStats stats_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_LAW_TRIALS_H_
