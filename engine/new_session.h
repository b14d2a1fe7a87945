#ifndef TANDEM_ENGINE_NEW_SESSION_H_
#define TANDEM_ENGINE_NEW_SESSION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime.h"
#include "engine/session.h"
#include "tandem/engine.h"

namespace tandem {

// The tokens of a request's prompt. INVALID_ARGUMENT naming `prompt` or `prompt_ids`.
absl::StatusOr<std::vector<TokenId>> PromptIdsOf(const Request& request, const Runtime& runtime);

// The session of a request, before its first round: without id, callbacks and caches.
// INVALID_ARGUMENT naming the field, what was given and what is allowed, if this engine can never
// meet it.
absl::StatusOr<std::unique_ptr<Session>> NewSession(Request request, const EngineOptions& options,
                                                    const Runtime& runtime);

}  // namespace tandem

#endif  // TANDEM_ENGINE_NEW_SESSION_H_
