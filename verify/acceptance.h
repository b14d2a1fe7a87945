// Who of a draft stays: the acceptance rules, as functions of distributions and noise. Laws, proofs
// and edges: docs/verification.md.
#ifndef TANDEM_VERIFY_ACCEPTANCE_H_
#define TANDEM_VERIFY_ACCEPTANCE_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "model/sampling.h"

namespace tandem {

// Each leaves the output distributed exactly as the target's own. At temperature 0 they are one
// rule: accept while the draft is the target's argmax.
enum class AcceptanceRule {
  kExactMatch,  // the target chooses with noise keyed by position; accept what it would have chosen
  kBlock,  // block verification (Sun et al. 2024): accepts the most that is possible in a chain
  kToken,  // rejection sampling (Leviathan et al. 2023; Chen et al. 2023)
};
inline constexpr AcceptanceRule kAllRules[] = {AcceptanceRule::kExactMatch, AcceptanceRule::kBlock,
                                               AcceptanceRule::kToken};
std::string_view NameOf(AcceptanceRule rule);

// What verification makes of one proposal: keep the first `num_accepted` tokens, then `next`.
struct Verdict {
  int num_accepted = 0;
  TokenId next = 0;  // the target's correction, or its bonus token if everything was accepted
};

// The random numbers of one round. Slots count from 0; every number is independent of all others
// and of those the draft was drawn with (except under kExactMatch, where nothing depends on the
// draft's).
struct RoundNoise {
  absl::FunctionRef<float(int slot)> accept_uniform;  // in (0, 1)
  // A token with probability proportional to `weights`; -1 if they are all zero.
  absl::FunctionRef<TokenId(absl::Span<const float> weights, int slot)> draw_residual;
  // The target's own choice at `slot`.
  absl::FunctionRef<TokenId(const Distribution& target, int slot)> draw_target;
};

// The target's distribution after the first `slot` draft tokens, valid as long as the judgement.
// Asked for in increasing order, and not past the first rejection where the rule need not look
// there.
using TargetRows = absl::FunctionRef<absl::StatusOr<const Distribution*>(int slot)>;

// Judges `tokens`, where draft[i] is the distribution that tokens[i] was drawn from. Rows of the
// draft may be shorter than the target's: what lies beyond has probability 0. Inputs are left as
// they are. Fails as `target` does. No rule keeps a token to which the target gives no probability,
// ids outside its row among them, or asks for a row behind one.
// REQUIRES: draft.size() >= tokens.size(); under kBlock and kToken draft[i] gives tokens[i] a
// positive probability unless the target gives it none.
absl::StatusOr<Verdict> Judge(AcceptanceRule rule, absl::Span<const TokenId> tokens,
                              TargetRows target, absl::Span<const Distribution> draft,
                              const RoundNoise& noise);

}  // namespace tandem

#endif  // TANDEM_VERIFY_ACCEPTANCE_H_
