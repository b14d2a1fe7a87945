#ifndef TANDEM_PROOF_TARGET_LAW_H_
#define TANDEM_PROOF_TARGET_LAW_H_

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/sampling.h"
#include "proof/remembered_model.h"
#include "tandem/sampling_params.h"
#include "tandem/types.h"

namespace tandem {

// The distribution after `prompt` and `output`, which a head would have drafted: of the first
// `vocab_size` tokens at most, put through the sampling that decoding uses, with the counts of
// these tokens.
absl::Status MakeDistributionAfter(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab_size, Distribution* row);

// The exact law of the target's next tokens behind a prompt, in cells whose probabilities are known
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
    int left_cell = 0;                           // of whatever is no child
  };
  int length_ = 0;
  std::vector<Node> nodes_;  // [0] is the root
  std::vector<double> probabilities_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_TARGET_LAW_H_
