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

// The distribution after `prompt` and `output`, which a head would have drafted: of the first
// `vocab_size` tokens at most, put through the sampling that decoding uses, with the counts of
// these tokens.
absl::Status MakeDistributionAfter(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab_size, Distribution* row);

// The exact law of the target's next tokens after a prompt, in cells whose probabilities are known
// and sum to 1 whatever the vocabulary: the tree of continuations is expanded where it is most
// likely; each path of full length that is reached is a cell, and so is leaving the tree at each
// expanded place.
class TargetLaw {
 public:
  struct Options {
    int length = 1;                      // tokens
    double min_probability = 1.0 / 256;  // of a path that is followed
  };
  static absl::StatusOr<TargetLaw> Expand(RememberedRows* target, absl::Span<const TokenId> prompt,
                                          const SamplingParams& sampling, const Options& options);

  int length() const { return length_; }
  int num_rows() const { return static_cast<int>(nodes_.size()); }  // of the target, looked at
  absl::Span<const double> probabilities() const { return probabilities_; }  // [cells]

  // The cell of these tokens; -1 if that depends on how they go on. It never does from length() on.
  int CellOf(absl::Span<const TokenId> output) const;

 private:
  struct Node {
    absl::flat_hash_map<TokenId, int> children;  // nodes; at the last token cells
    int left_cell = 0;                           // the cell of all tokens that are not children
  };
  int length_ = 0;
  std::vector<Node> nodes_;  // [0] is the root
  std::vector<double> probabilities_;
};

// What is generated again and again.
struct LawCase {
  std::vector<TokenId> prompt{};
  ProofSampling sampling{};
  AcceptanceRule rule = AcceptanceRule::kToken;
  int draft_tokens = 3;  // 0: plain decoding
  int length = 3;        // tokens to be looked at
};

// Seeded generations from one prompt, their first tokens counted in the cells of the exact law. The
// prompt is read once; each generation starts from a fork. Thread-compatible.
class LawTrials {
 public:
  // `law` is of the case's prompt, sampling and length. Generation i draws from sequence i of
  // `seeds`.
  LawTrials(const ProofWorld& world, std::shared_ptr<const TargetLaw> law, LawCase law_case,
            RandomSource seeds, int batch);

  // Makes `runs` more generations.
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
  KvSequence prompt_kv_;  // LengthToFork() tokens of the prompt, once they are read
  int64_t started_ = 0;
  int64_t finished_ = 0;
  std::vector<int64_t> counts_;  // [cells]
  RoundStats stats_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_LAW_TRIALS_H_
