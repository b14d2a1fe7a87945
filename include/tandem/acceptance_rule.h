#ifndef TANDEM_INCLUDE_TANDEM_ACCEPTANCE_RULE_H_
#define TANDEM_INCLUDE_TANDEM_ACCEPTANCE_RULE_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Who of a draft stays. Each leaves the output distributed exactly as the target's own. At
// temperature 0 they are one rule: accept while the draft is the target's argmax.
enum class AcceptanceRule {
  kAuto,        // in options alone: chosen for each request, as docs/verification.md says
  kExactMatch,  // the target chooses with noise keyed by position; accept what it would have chosen
  kBlock,  // block verification (Sun et al. 2024): accepts the most that is possible in a chain
  kToken,  // rejection sampling (Leviathan et al. 2023; Chen et al. 2023)
};
inline constexpr AcceptanceRule kAllRules[] = {AcceptanceRule::kExactMatch, AcceptanceRule::kBlock,
                                               AcceptanceRule::kToken};

// "auto", "exact_match", "block", "token".
std::string_view NameOf(AcceptanceRule rule);
// INVALID_ARGUMENT naming the field `verifier` for other names.
absl::StatusOr<AcceptanceRule> ParseAcceptanceRule(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ACCEPTANCE_RULE_H_
