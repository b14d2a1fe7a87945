#ifndef TANDEM_ENGINE_ROUND_H_
#define TANDEM_ENGINE_ROUND_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/policy/speculation_policy.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "tandem/tokenizer.h"
#include "verify/verifier.h"

namespace tandem {

// Runs one round -- draft, verify, commit, roll back -- for every step's session together. A
// session whose step completes its tokens gains between 1 and granted + 1 of them, or ends;
// the others have read a part of their prompt. `drafter` may be null if no step drafts. `policy`
// learns what the round cost and kept, `deliver` included, which is called last and may hand the
// new tokens out. On error every session is as it was, and there is nothing to deliver.
//
// Only the target's pass fails the round. An exception from a session's own draft, constraint or
// text costs that session its draft or fails it alone. A failing draft model costs its drafts.
absl::Status RunRound(
    Drafter* drafter, Verifier* verifier, absl::Span<const RoundStep> steps,
    SpeculationPolicy* policy, absl::FunctionRef<void()> deliver = [] {});

// Whether a session with a drafter of this kind has a state of `drafter`, which may be null.
bool NeedsState(const Drafter* drafter, DrafterKind kind);

// Finds the drafts that need no drafter: the tokens that the session's constraint forces, and those
// that its request predicted. Adds them to the session's options. How many of them a round may use
// is known from committed tokens alone.
void LookForGivenDrafts(const Tokenizer& tokenizer, Session* session);

// Cuts a proposal whose tokens were not drawn before the first that the session's constraint does
// not allow: every rule would reject it there. A drawn proposal keeps its length, which must not
// depend on the tokens drawn.
void KeepToConstraint(Session* session);

}  // namespace tandem

#endif  // TANDEM_ENGINE_ROUND_H_
