#ifndef TANDEM_PROOF_CLASS_CONSTRAINT_H_
#define TANDEM_PROOF_CLASS_CONSTRAINT_H_

#include <memory>

#include "engine/session.h"
#include "tandem/token_constraint.h"

namespace tandem {

// Behind tokens whose ids add up to s, token v may come if (v - s) % 3 is 0 or 1. It never ends,
// and forces nothing. For proofs with any model: it needs no grammar, binds at every place, and
// what it allows hangs on all tokens before. Of vocabularies of up to 2^18 tokens.
class ClassConstraint final : public TokenConstraint {
 public:
  std::unique_ptr<ConstraintState> Begin() const override;
};

// Mistakes that an engine can make with constraints.
enum class ConstraintFault {
  kNone,
  kLate,           // masks are those of one position before
  kNotRolledBack,  // what was rejected stays
  kNotOnBonus,     // no mask on the row behind a whole draft
};

// A state of a ClassConstraint with this mistake, of `session`, which must outlive it.
std::unique_ptr<ConstraintState> BrokenClassState(ConstraintFault fault, const Session* session);

}  // namespace tandem

#endif  // TANDEM_PROOF_CLASS_CONSTRAINT_H_
