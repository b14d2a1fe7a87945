#ifndef TANDEM_ENGINE_ENGINE_PARTS_H_
#define TANDEM_ENGINE_ENGINE_PARTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/prompt_store.h"
#include "engine/runtime.h"
#include "kvevents/cache_events.h"
#include "kvstore/page_store.h"
#include "tandem/engine_options.h"

namespace tandem {

// What an engine is made of. Members are in the order that destroys users before what they use.
struct EngineParts {
  EngineOptions options;  // with models that were found
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<PromptStore> store;   // or null
  std::unique_ptr<CacheEvents> events;  // of the target's cache, or null
  std::string learned_file;             // LearnedSpeculationFile; empty if nothing is kept

  // As Runtime::Load. `store`: in place of that of the options; null for that.
  static absl::StatusOr<EngineParts> Load(const EngineOptions& options, bool keeps_speculation,
                                          std::shared_ptr<PageStore> store);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_ENGINE_PARTS_H_
