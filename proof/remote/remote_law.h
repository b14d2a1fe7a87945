// Whether two servers draw their answers from the same law.
#ifndef TANDEM_PROOF_REMOTE_REMOTE_LAW_H_
#define TANDEM_PROOF_REMOTE_REMOTE_LAW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proof/remote/answer_checks.h"
#include "proof/remote/remote_engine.h"
#include "proof/remote/remote_proof.h"
#include "tandem/types.h"

namespace tandem {

// The first tokens of an answer. kAnswerEnd follows the last token of a shorter one.
using Draw = std::vector<TokenId>;
inline constexpr TokenId kAnswerEnd = -1;

// Cells for the first `length` tokens. Each known prefix is the cell of the draws of which it is
// the longest known beginning.
class PrefixCells {
 public:
  explicit PrefixCells(int length) : length_(length) { cells_[{}] = 0; }
  // Knows the prefixes with which at least `least` of the draws begin.
  PrefixCells(absl::Span<const Draw> draws, int length, int64_t least);

  // REQUIRES: the prefix without its last token is known.
  void Add(const Draw& prefix) { cells_.emplace(prefix, cells_.size()); }
  bool Knows(const Draw& prefix) const { return cells_.contains(prefix); }
  size_t size() const { return cells_.size(); }
  size_t CellOf(const Draw& draw) const;
  std::vector<int64_t> Count(absl::Span<const Draw> draws) const;  // [cells]

 private:
  int length_;
  std::map<Draw, size_t> cells_;
};

// Returns the tests of two samples that need nothing else: all cells, the second and the third
// token alone, the mean likelihood, and whether neighbours equal each other too often. Draws 2i and
// 2i + 1 are neighbours in a request.
std::vector<RemoteLawTest> CompareDraws(absl::Span<const Draw> plain,
                                        absl::Span<const Draw> speculative, int length);

// Tests the laws of several settings after the prompts that show most, and adds a check for each
// setting to the proof. Errors are those of RemoteEngine::Ask; tests that were made are added.
absl::Status CheckLaws(const RemoteTrial& trial);

// Tests one law after one prompt: temperature 1 and top-k 8.
absl::Status CheckOneLaw(const RemoteTrial& trial, const RemotePrompt& prompt);

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_REMOTE_LAW_H_
