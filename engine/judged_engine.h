// Engines with parts that the caller supplies, for measurements and tests.
#ifndef TANDEM_ENGINE_JUDGED_ENGINE_H_
#define TANDEM_ENGINE_JUDGED_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kvcache/store/page_store.h"
#include "tandem/engine.h"
#include "verify/verifier.h"

namespace tandem {

// Like Engine::Create, with `judge` in place of Judge. `judge` is called on the engine's thread.
// Unless it obeys Judge's laws, the output is not the target's. What such an engine learns is not
// saved.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithJudge(const EngineOptions& options,
                                                              JudgeFunction judge);

// Like Engine::Create, with `store` in place of that of EngineOptions::kv_store. What such an
// engine learns is not saved.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithStore(const EngineOptions& options,
                                                              std::shared_ptr<PageStore> store);

}  // namespace tandem

#endif  // TANDEM_ENGINE_JUDGED_ENGINE_H_
