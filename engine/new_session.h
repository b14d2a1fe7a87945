#ifndef TANDEM_ENGINE_NEW_SESSION_H_
#define TANDEM_ENGINE_NEW_SESSION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime.h"
#include "engine/session.h"
#include "tandem/engine_options.h"
#include "tandem/request.h"

namespace tandem {

// Returns the tokens of a request's prompt. INVALID_ARGUMENT naming `prompt` or `prompt_ids`.
absl::StatusOr<std::vector<TokenId>> PromptIdsOf(const Request& request, const Runtime& runtime);

// Returns the session of a request before its first round, without id, callbacks and caches.
// INVALID_ARGUMENT naming the field, the value found and the values allowed, if this engine can
// never serve the request.
absl::StatusOr<std::unique_ptr<Session>> NewSession(Request request, const EngineOptions& options,
                                                    const Runtime& runtime);

}  // namespace tandem

#endif  // TANDEM_ENGINE_NEW_SESSION_H_
