// Judge with rows that are all in the host's memory.
#ifndef TANDEM_TESTS_JUDGE_ROWS_H_
#define TANDEM_TESTS_JUDGE_ROWS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "verify/acceptance.h"

namespace tandem {

inline absl::StatusOr<Verdict> JudgeRows(AcceptanceRule rule, absl::Span<const TokenId> tokens,
                                         TargetRows target, absl::Span<const Distribution> draft,
                                         const RoundNoise& noise) {
  HostSlots slots(tokens, target, draft, noise);
  return Judge(rule, static_cast<int>(tokens.size()), slots);
}

}  // namespace tandem

#endif  // TANDEM_TESTS_JUDGE_ROWS_H_
