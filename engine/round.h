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

// Runs one round -- draft, verify, commit, roll back -- for the sessions of all steps together. A
// session whose step completes gains between 1 and granted + 1 tokens, or ends; the others have
// read a part of their prompt. `drafter` may be null if no step drafts. `deliver` is called last
// and may hand out the new tokens. `policy` learns the time that the round took, `deliver`
// included, and the tokens that it kept. On error every session is unchanged and `deliver` is not
// called.
//
// Only a failure of the target's pass fails the round. An exception from a session's own draft,
// constraint or text drops that session's draft or fails only that session. If the draft model
// fails, its drafts are dropped.
absl::Status RunRound(
    Drafter* drafter, Verifier* verifier, absl::Span<const RoundStep> steps,
    SpeculationPolicy* policy, absl::FunctionRef<void()> deliver = [] {});

// Whether a session with this kind of drafter needs a state of `drafter`, which may be null.
bool NeedsState(const Drafter* drafter, DrafterKind kind);

// Finds drafts that do not come from a drafter: tokens that the session's constraint forces, and
// tokens that its request predicted. Adds them to the session's options. The number that a round
// may use depends only on committed tokens.
void FindGivenDrafts(const Tokenizer& tokenizer, Session* session);

// Cuts a proposal before the first token that the session's constraint does not allow: every rule
// would reject it there. Leaves proposals with sampled tokens alone, because their length must not
// depend on the tokens sampled.
void KeepToConstraint(Session* session);

}  // namespace tandem

#endif  // TANDEM_ENGINE_ROUND_H_
