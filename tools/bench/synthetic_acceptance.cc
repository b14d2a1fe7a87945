#include "tools/bench/synthetic_acceptance.h"

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {

JudgeFunction SyntheticJudge(double acceptance, int vocab_size) {
  TANDEM_CHECK(0.0 <= acceptance && acceptance <= 1.0);
  return [acceptance, vocab_size](AcceptanceRule, absl::Span<const TokenId> tokens,
                                  TargetRows target, absl::Span<const Distribution>,
                                  const RoundNoise& noise) -> absl::StatusOr<Verdict> {
    const int count = static_cast<int>(tokens.size());
    for (int slot = 0;; ++slot) {
      ASSIGN_OR_RETURN(const Distribution* row, target(slot));
      const bool is_kept = slot < count && 0 <= tokens[slot] && tokens[slot] < vocab_size &&
                           noise.accept_uniform(slot) < acceptance;
      if (!is_kept) return Verdict{.num_accepted = slot, .next = noise.draw_target(*row, slot)};
    }
  };
}

double ExpectedTokensPerRound(double acceptance, int draft_tokens) {
  double tokens = 1.0;
  double chance = 1.0;
  for (int i = 0; i < draft_tokens; ++i) tokens += chance *= acceptance;
  return tokens;
}

}  // namespace tandem
