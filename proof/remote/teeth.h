// Whether the checks of a remote proof would see faults: the same checks again, on answers that
// were changed after they came.
#ifndef TANDEM_PROOF_REMOTE_TEETH_H_
#define TANDEM_PROOF_REMOTE_TEETH_H_

#include "absl/status/status.h"
#include "proof/remote/answer_checks.h"
#include "proof/remote/remote_proof.h"

namespace tandem {

// Plants each fault that a check of `proof` should see, and adds whether it did. Faults of a check
// that was not made, or that found a fault of the server's own, are not planted. Errors are those
// of RemoteEngine::Ask.
absl::Status CheckTeeth(const RemoteTrial& trial, const AnswerChecks& answers);

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_TEETH_H_
