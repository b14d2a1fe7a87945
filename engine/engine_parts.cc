#include "engine/engine_parts.h"

#include <utility>

#include "base/status_macros.h"
#include "engine/learned_speculation.h"
#include "tandem/model_places.h"

namespace tandem {

absl::StatusOr<EngineParts> EngineParts::Load(const EngineOptions& options, bool keeps_speculation,
                                              std::shared_ptr<PageStore> store) {
  EngineParts parts;
  parts.options = options;
  RETURN_IF_ERROR(ResolveModels(&parts.options));
  // Before models are read, which takes long: an endpoint may be taken.
  std::unique_ptr<KvEventPublisher> publisher;
  if (!parts.options.kv_events.empty()) {
    RETURN_IF_ERROR(parts.options.Validate());
    ASSIGN_OR_RETURN(publisher,
                     StartKvEventPublisher({.endpoint = parts.options.kv_events,
                                            .replay_endpoint = parts.options.kv_events_replay,
                                            .topic = parts.options.kv_events_topic}));
  }
  ASSIGN_OR_RETURN(Runtime runtime, Runtime::Load(parts.options));
  parts.runtime = std::make_unique<Runtime>(std::move(runtime));
  if (publisher != nullptr) {
    parts.events =
        std::make_unique<CacheEvents>(parts.runtime->target_cache.get(), std::move(publisher));
  }
  if (keeps_speculation) {
    parts.learned_file = LearnedSpeculationFile(parts.options, parts.runtime->drafter_kind,
                                                parts.runtime->backend->description());
  }
  ASSIGN_OR_RETURN(parts.store,
                   PromptStore::Open(std::move(store), parts.options, parts.runtime.get()));
  return parts;
}

}  // namespace tandem
