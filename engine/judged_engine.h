// An engine whose drafts somebody else judges: for measurements alone.
#ifndef TANDEM_ENGINE_JUDGED_ENGINE_H_
#define TANDEM_ENGINE_JUDGED_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tandem/engine.h"
#include "verify/verifier.h"

namespace tandem {

// As Engine::Create, with `judge` in the place of Judge, called on the engine's thread. Unless it
// keeps Judge's laws the output is not the target's. What such an engine learns is not kept.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithJudge(const EngineOptions& options,
                                                              JudgeFunction judge);

}  // namespace tandem

#endif  // TANDEM_ENGINE_JUDGED_ENGINE_H_
