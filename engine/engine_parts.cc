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
  ASSIGN_OR_RETURN(Runtime runtime, Runtime::Load(parts.options));
  parts.runtime = std::make_unique<Runtime>(std::move(runtime));
  if (keeps_speculation) {
    parts.learned_file = LearnedSpeculationFile(parts.options, parts.runtime->drafter_kind,
                                                parts.runtime->backend->description());
  }
  ASSIGN_OR_RETURN(parts.store,
                   store == nullptr
                       ? PromptStore::Open(parts.options, parts.runtime.get())
                       : PromptStore::Over(std::move(store), parts.options, parts.runtime.get()));
  return parts;
}

}  // namespace tandem
