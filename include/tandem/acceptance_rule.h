#ifndef TANDEM_INCLUDE_TANDEM_ACCEPTANCE_RULE_H_
#define TANDEM_INCLUDE_TANDEM_ACCEPTANCE_RULE_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Decides which draft tokens are kept. With each rule the output has exactly the target's
// distribution. At temperature 0 all rules are the same: accept while the draft token is the
// target's argmax.
enum class AcceptanceRule {
  kAuto,        // only in options: chosen for each request (docs/verification.md)
  kExactMatch,  // the target samples with noise keyed by position; accept the tokens that it
                // samples
  kBlock,  // block verification (Sun et al. 2024): accepts the most tokens possible for a chain
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
