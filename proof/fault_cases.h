#ifndef TANDEM_PROOF_FAULT_CASES_H_
#define TANDEM_PROOF_FAULT_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/instant.h"
#include "proof/planted_faults.h"
#include "proof/remembered_model.h"
#include "tandem/sampling_params.h"

namespace tandem {

// Where a fault is looked for.
struct FaultCase {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::string sampling_name;
  int draft_tokens = 3;
  int length = 3;  // tokens to be looked at
};

// A model's logits after `context`, whose last `num_drafted` tokens were drafted. Valid until the
// model computes again.
using RowsAfter = std::function<absl::StatusOr<absl::Span<const float>>(
    absl::Span<const TokenId> context, int num_drafted)>;
// The rows of a model for which drafted tokens are like others.
RowsAfter RowsOf(RememberedModel* model);

// Finds for each fault, among beginnings of the prompts and sampling that leaves few tokens (so
// that cells are counted often), the case where it should change most, as far as that can be read
// off the two models' rows.
class FaultCases {
 public:
  // Looks at all prompts, then at their beginnings until `deadline`. `draft` is null for a
  // drafter without a model or a head; then what it proposes counts.
  static absl::StatusOr<FaultCases> Find(const std::vector<std::vector<TokenId>>& prompts,
                                         RememberedModel* target, const RowsAfter& draft,
                                         Drafter* drafter, Instant deadline);

  const FaultCase& Of(FaultShows shows) const;

 private:
  struct Best {
    FaultCase where;
    double effect = -1.0;
    void Offer(double effect_there, const FaultCase& there);
  };
  Best coins_;      // where coins decide
  Best one_coin_;   // where a coin that also draws decides otherwise
  Best drops_;      // where a draft that drops its unlikely tokens shows
  Best shared_;     // where noise shared by draft and residual shows
  Best unscaled_;   // where block's residual is scaled most
  Best stops_;      // where block accepts past a failed test most
  Best penalties_;  // where tokens repeat
  Best constraint_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_FAULT_CASES_H_
