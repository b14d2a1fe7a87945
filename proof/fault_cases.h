#ifndef TANDEM_PROOF_FAULT_CASES_H_
#define TANDEM_PROOF_FAULT_CASES_H_

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "base/instant.h"
#include "proof/law_trials.h"
#include "proof/planted_faults.h"
#include "proof/remembered_model.h"

namespace tandem {

// Finds for each fault, among beginnings of the prompts and sampling that leaves few tokens (so
// that cells are counted often), the case where it should change most, as far as that can be read
// off the two models' rows.
class FaultCases {
 public:
  // Looks at all prompts, then at their beginnings until `deadline`. `draft` is null for a
  // drafter without a model or a head; then what it proposes counts.
  static absl::StatusOr<FaultCases> Find(const std::vector<std::vector<TokenId>>& prompts,
                                         RememberedRows* target, RememberedRows* draft,
                                         Drafter* drafter, Instant deadline);

  const LawCase& Of(FaultShows shows) const { return best_[static_cast<int>(shows)].where; }

 private:
  struct Best {
    LawCase where;
    double effect = -1.0;
  };
  Best& BestOf(FaultShows shows) { return best_[static_cast<int>(shows)]; }

  std::array<Best, kNumFaultShows> best_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_FAULT_CASES_H_
