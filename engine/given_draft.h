// Drafts that need no drafter: what a constraint forces, and what a request predicted.
#ifndef TANDEM_ENGINE_GIVEN_DRAFT_H_
#define TANDEM_ENGINE_GIVEN_DRAFT_H_

#include "engine/session.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Finds them behind the session's tokens, and adds what there is to its options. What a round may
// use of them is known from committed tokens alone.
void LookForGivenDrafts(const Tokenizer& tokenizer, Session* session);

// Makes the session's proposal of those of `source`, at most `max_tokens`.
void ProposeGiven(DraftSource source, int max_tokens, Session* session);

// Cuts a proposal whose tokens were not drawn before the first that the session's constraint does
// not allow: every rule would reject it there. A drawn one is left as it is, because how far it
// goes must not depend on what was drawn.
void KeepToConstraint(Session* session);

}  // namespace tandem

#endif  // TANDEM_ENGINE_GIVEN_DRAFT_H_
