// Errors as OpenAI's clients expect them. Inside the server they are statuses like all others,
// which name the field that is wrong (include/tandem/field_error.h).
#ifndef TANDEM_SERVER_API_API_ERROR_H_
#define TANDEM_SERVER_API_API_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/http_message.h"
#include "tandem/json_value.h"

namespace tandem {

// The same status with a `code` for programs (include/tandem/field_error.h) in place of its kind's,
// and with that HTTP status.
absl::Status WithCode(absl::Status status, absl::string_view code, int http_status);

// {"error": {"message", "type", "param", "code"}}; `param` is the field that the status names, or
// null.
JsonValue ErrorJson(const absl::Status& status);

// The whole answer: 400 for INVALID_ARGUMENT, 401 UNAUTHENTICATED, 404 NOT_FOUND, 429
// RESOURCE_EXHAUSTED, 503 UNAVAILABLE, 500 otherwise, with the headers that go with them.
HttpResponse ErrorResponse(const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_API_ERROR_H_
