#ifndef TANDEM_ENGINE_ROUND_H_
#define TANDEM_ENGINE_ROUND_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/speculation_policy.h"
#include "engine/scheduler.h"
#include "verify/verifier.h"

namespace tandem {

// Runs one round -- draft, verify, commit, roll back -- for every step's session together. A
// session whose step completes its tokens gains between 1 and draft_tokens + 1 of them, or ends;
// the others have read a part of their prompt. `drafter` may be null if no step drafts. `policy`
// learns what the round cost and kept. On error every session is as it was.
absl::Status RunRound(Drafter* drafter, Verifier* verifier, absl::Span<const RoundStep> steps,
                      SpeculationPolicy* policy);

}  // namespace tandem

#endif  // TANDEM_ENGINE_ROUND_H_
