// Errors in OpenAI's format and, of /v1/messages, in Anthropic's. Inside the server they are
// statuses like any other, which name the wrong field (include/tandem/field_error.h).
#ifndef TANDEM_SERVER_API_API_ERROR_H_
#define TANDEM_SERVER_API_API_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/http_message.h"
#include "tandem/json_value.h"

namespace tandem {

// Returns `status` with a machine-readable `code` (include/tandem/field_error.h) and an HTTP
// status, both in place of its kind's.
absl::Status WithCode(absl::Status status, absl::string_view code, int http_status);

// The error of requests that the server no longer accepts or finishes.
absl::Status ServerIsStopping();

// Returns {"error": {"message", "type", "param", "code"}}. `param` is the field that the status
// names, or null.
JsonValue ErrorJson(const absl::Status& status);

// How an endpoint writes its errors.
enum class ErrorForm {
  kOpenAi,
  kAnthropic,
};

// Returns the whole answer: 400 for INVALID_ARGUMENT, 401 UNAUTHENTICATED, 404 NOT_FOUND, 429
// RESOURCE_EXHAUSTED, 503 UNAVAILABLE and DATA_LOSS (Engine::health), 500 otherwise, with the
// matching headers.
HttpResponse ErrorResponse(const absl::Status& status, ErrorForm form = ErrorForm::kOpenAi);

// Returns the events that end a stream with this error answer.
std::string ErrorEvents(const HttpResponse& error, ErrorForm form);

// The event that ends a stream of OpenAI's completions.
inline constexpr char kDoneEvent[] = "data: [DONE]\n\n";

}  // namespace tandem

#endif  // TANDEM_SERVER_API_API_ERROR_H_
