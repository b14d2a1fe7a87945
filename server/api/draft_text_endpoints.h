// POST, GET and DELETE /v1/draft_texts[/ID]: texts that a tenant's outputs may repeat in parts.
#ifndef TANDEM_SERVER_API_DRAFT_TEXT_ENDPOINTS_H_
#define TANDEM_SERVER_API_DRAFT_TEXT_ENDPOINTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json/request_fields.h"
#include "server/api/served_model.h"
#include "server/http_message.h"
#include "tandem/engine.h"

namespace tandem {

// Adds the texts of {"text": TEXT} or {"texts": [TEXTS]}, with "name" and "cache_salt". Answers
// with their description: {"id": "dt-1", "object": "draft_text", "name": "", "num_texts": 1,
// "num_tokens": 512, "bytes": 4096, "created": TIME}. Unknown fields are added to `ignored`, or are
// errors if the model is strict. `engine` runs the model.
absl::StatusOr<std::string> AddDraftText(absl::string_view body, const ServedModel& model,
                                         Engine* engine, IgnoredFields* ignored);

// Answers with the descriptions of a tenant's texts, as a list, or with that of the path's ID. The
// parameter `cache_salt` of the query is the tenant; so it is below.
absl::StatusOr<std::string> DraftTextsBody(const HttpRequest& request, const Engine& engine);

// Answers with {"id": ID, "object": "draft_text", "deleted": true}.
absl::StatusOr<std::string> RemoveDraftText(const HttpRequest& request, Engine* engine);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_DRAFT_TEXT_ENDPOINTS_H_
