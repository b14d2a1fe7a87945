#include "server/api/api_error.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_writer.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr char kHttpPayload[] = "tandem/http_status";
constexpr char kRetryAfterSeconds[] = "1";

struct Kind {
  absl::StatusCode status;
  int http;
  const char* type;
  const char* code;
};

constexpr Kind kKinds[] = {
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", "invalid_value"},
    {absl::StatusCode::kUnauthenticated, 401, "invalid_request_error", "invalid_api_key"},
    {absl::StatusCode::kNotFound, 404, "invalid_request_error", "not_found"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "queue_full"},
    {absl::StatusCode::kUnavailable, 503, "server_error", "stopping"},
    {absl::StatusCode::kDataLoss, 503, "server_error", "device_failed"},
    {absl::StatusCode::kUnknown, 500, "server_error", "internal_error"}};

// Anthropic's types of errors by HTTP status; the last one is for all others.
constexpr std::pair<int, const char*> kMessagesTypes[] = {
    {400, "invalid_request_error"}, {401, "authentication_error"},
    {403, "permission_error"},      {404, "not_found_error"},
    {405, "invalid_request_error"}, {413, "request_too_large"},
    {415, "invalid_request_error"}, {429, "rate_limit_error"},
    {503, "overloaded_error"},      {0, "api_error"}};

const Kind& KindOf(const absl::Status& status) {
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds) - 1,
                                  [&](const Kind& k) { return k.status == status.code(); });
  return *kind;
}

int HttpStatusOf(const absl::Status& status) {
  int http = 0;
  const absl::optional<absl::Cord> payload = status.GetPayload(kHttpPayload);
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &http)) return http;
  return KindOf(status).http;
}

// Returns {"type": "error", "error": {"type", "message"}}, as Anthropic's API has it.
Json MessagesErrorJson(const absl::Status& status) {
  const int http = HttpStatusOf(status);
  const auto* type = std::find_if(std::begin(kMessagesTypes), std::end(kMessagesTypes) - 1,
                                  [http](const auto& entry) { return entry.first == http; });
  return {{"type", "error"},
          {"error", {{"type", type->second}, {"message", std::string(status.message())}}}};
}

}  // namespace

absl::Status WithCode(absl::Status status, absl::string_view code, int http_status) {
  status.SetPayload(kHttpPayload, absl::Cord(absl::StrCat(http_status)));
  return WithCode(std::move(status), code);
}

absl::Status ServerIsStopping() { return absl::UnavailableError("the server is stopping"); }

Json ErrorJson(const absl::Status& status) {
  const Kind& kind = KindOf(status);
  const std::string field = FieldOf(status);
  const std::string code = CodeOf(status);
  return {{"error",
           {{"message", std::string(status.message())},
            {"type", kind.type},
            {"param", field.empty() ? Json(nullptr) : Json(field)},
            {"code", code.empty() ? std::string(kind.code) : code}}}};
}

HttpResponse ErrorResponse(const absl::Status& status, ErrorForm form) {
  HttpResponse response;
  response.status = HttpStatusOf(status);
  response.body =
      DumpJson(form == ErrorForm::kAnthropic ? MessagesErrorJson(status) : ErrorJson(status));
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  }
  return response;
}

std::string ErrorEvents(const HttpResponse& error, ErrorForm form) {
  const bool is_anthropic = form == ErrorForm::kAnthropic;
  return absl::StrCat(is_anthropic ? "event: error\n" : "", "data: ", error.body, "\n\n",
                      is_anthropic ? "" : kDoneEvent);
}

}  // namespace tandem
