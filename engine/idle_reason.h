#ifndef TANDEM_ENGINE_IDLE_REASON_H_
#define TANDEM_ENGINE_IDLE_REASON_H_

#include <string>

#include "draft/policy/round_costs.h"
#include "engine/session.h"

namespace tandem {

// Explains in one sentence why most rounds of this generation drafted nothing although the engine
// chose its draft lengths. Empty if they drafted, if the request fixed the length or the drafter to
// none, or if there were too few rounds to tell.
std::string IdleReasonOf(const Session& session, const RoundCosts& costs);

}  // namespace tandem

#endif  // TANDEM_ENGINE_IDLE_REASON_H_
