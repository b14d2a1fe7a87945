#ifndef TANDEM_ENGINE_PROCESS_BOUND_ENGINE_H_
#define TANDEM_ENGINE_PROCESS_BOUND_ENGINE_H_

#include <memory>

#include "tandem/engine.h"

namespace tandem {

// `engine`, for the process that calls this. A process forked from it has the engine's memory
// without its threads, so nothing there may wait for them or take a lock that one of them held at
// the fork: calls are refused as Engine says, and the destructor leaves the engine's memory as it
// is.
std::unique_ptr<Engine> BoundToThisProcess(std::unique_ptr<Engine> engine);

}  // namespace tandem

#endif  // TANDEM_ENGINE_PROCESS_BOUND_ENGINE_H_
