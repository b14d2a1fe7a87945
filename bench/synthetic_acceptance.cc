#include "bench/synthetic_acceptance.h"

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {

JudgeFunction SyntheticJudge(double acceptance, int vocab_size) {
  TANDEM_CHECK(0.0 <= acceptance && acceptance <= 1.0);
  return [acceptance, vocab_size](AcceptanceRule, int num_tokens,
                                  Slots& slots) -> absl::StatusOr<Verdict> {
    for (int slot = 0;; ++slot) {
      RETURN_IF_ERROR(slots.Reach(slot));
      if (slot == num_tokens) return Verdict{.num_accepted = slot, .next = slots.DrawTarget(slot)};
      const TokenId token = slots.Token(slot);
      const bool is_kept =
          0 <= token && token < vocab_size && slots.AcceptUniform(slot) < acceptance;
      if (!is_kept) {
        return Verdict{.num_accepted = slot, .next = slots.DrawResidual(slot, 1.0)};
      }
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
