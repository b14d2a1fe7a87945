#ifndef TANDEM_ENGINE_ENGINE_PARTS_H_
#define TANDEM_ENGINE_ENGINE_PARTS_H_

#include <memory>
#include <string>

#include "draft/draft_text_store.h"
#include "engine/prompt_store.h"
#include "engine/runtime.h"
#include "kvcache/events/cache_events.h"
#include "tandem/engine.h"
#include "tandem/engine_options.h"
#include "verify/verifier.h"

namespace tandem {

// The parts of an engine. Members are ordered so that users are destroyed before the objects that
// they use.
struct EngineParts {
  EngineOptions options;  // with the paths of models
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<PromptStore> store;  // or null
  std::shared_ptr<DraftTextStore> texts;
  std::unique_ptr<CacheEvents> events;  // of the target's cache, or null
  std::string learned_file;             // LearnedSpeculationFile; empty if nothing is kept
};

// Starts an engine that runs generations on its own thread.
std::unique_ptr<Engine> StartEngine(EngineParts parts, JudgeFunction judge);

}  // namespace tandem

#endif  // TANDEM_ENGINE_ENGINE_PARTS_H_
