#include "tandem/acceptance_rule.h"

#include "base/named_values.h"

namespace tandem {
namespace {

constexpr NamedValues<AcceptanceRule, 4> kNames = {{{AcceptanceRule::kAuto, "auto"},
                                                    {AcceptanceRule::kExactMatch, "exact_match"},
                                                    {AcceptanceRule::kBlock, "block"},
                                                    {AcceptanceRule::kToken, "token"}}};

}  // namespace

std::string_view NameOf(AcceptanceRule rule) { return NameIn(kNames, rule); }

absl::StatusOr<AcceptanceRule> ParseAcceptanceRule(std::string_view name) {
  return ValueOf(kNames, "verifier", name);
}

}  // namespace tandem
