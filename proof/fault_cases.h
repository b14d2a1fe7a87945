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

using FaultCases = std::array<LawCase, kNumFaultShows>;  // [FaultShows]

// Finds, for each way in which faults show, the case in which a fault should change the output
// most, estimated from the rows of the two models. Searches beginnings of the prompts and samplings
// that leave few tokens, so that each cell gets many counts: all prompts, then their beginnings
// until `deadline`. `draft` is null for a drafter without a model or head; then the drafter's
// proposals are used.
absl::StatusOr<FaultCases> FindFaultCases(const std::vector<std::vector<TokenId>>& prompts,
                                          RememberedRows* target, RememberedRows* draft,
                                          Drafter* drafter, Instant deadline);

}  // namespace tandem

#endif  // TANDEM_PROOF_FAULT_CASES_H_
