// Engines with parts of the caller's, for measurements and tests.
#ifndef TANDEM_ENGINE_JUDGED_ENGINE_H_
#define TANDEM_ENGINE_JUDGED_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/page_store.h"
#include "tandem/engine.h"
#include "verify/verifier.h"

namespace tandem {

// As Engine::Create, with `judge` in the place of Judge, called on the engine's thread. Unless it
// keeps Judge's laws the output is not the target's. What such an engine learns is not kept.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithJudge(const EngineOptions& options,
                                                              JudgeFunction judge);

// As Engine::Create, with `store` in the place of that of EngineOptions::kv_store. What such an
// engine learns is not kept.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithStore(const EngineOptions& options,
                                                              std::shared_ptr<PageStore> store);

}  // namespace tandem

#endif  // TANDEM_ENGINE_JUDGED_ENGINE_H_
