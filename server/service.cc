#include "server/service.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/formats/json_text.h"
#include "nlohmann/json.hpp"
#include "server/api_error.h"
#include "server/token_endpoints.h"
#include "server/web_files.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// The page's scripts and styles are files of this server, and it talks to nobody else.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

constexpr std::string_view kPageFolder = "/page/";

HttpResponse JsonResponse(const Json& json) {
  return {.status = 200, .body = json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

// Takes as long for every key of the right length, so that its time tells nothing.
bool EqualsSecret(absl::string_view given, absl::string_view secret) {
  if (given.size() != secret.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) difference |= given[i] ^ secret[i];
  return difference == 0;
}

}  // namespace

struct Service::Route {
  const char* method;
  std::string_view path;  // what ends with a slash takes everything that begins with it
  bool needs_key;
  bool makes_text;  // refused while the server stops
  Reply (Service::*handle)(const HttpRequest&, absl::Time);

  bool Matches(std::string_view other) const {
    if (path.size() > 1 && path.back() == '/') {
      return absl::StartsWith(View(other), View(path)) && other.size() > path.size();
    }
    return path == other;
  }
};

absl::Span<const Service::Route> Service::Routes() {
  static constexpr Route kRoutes[] = {
      {"GET", "/", false, false, &Service::Page},
      {"GET", kPageFolder, false, false, &Service::PagePart},
      {"GET", "/health", false, false, &Service::Health},
      {"GET", "/ready", false, false, &Service::Ready},
      {"GET", "/metrics", false, false, &Service::MetricsText},
      {"GET", "/openapi.json", false, false, &Service::OpenApi},
      {"GET", "/v1/models", true, false, &Service::Models},
      {"GET", "/v1/models/", true, false, &Service::Models},
      {"POST", "/tokenize", true, false, &Service::Tokenize},
      {"POST", "/detokenize", true, false, &Service::Detokenize},
      {"POST", "/v1/completions", true, true, &Service::Completions},
      {"POST", "/v1/chat/completions", true, true, &Service::ChatCompletions}};
  return kRoutes;
}

Service::Service(Engine* engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      admission_(options_.max_sequences),
      metrics_(engine),
      model_(ServedModel::Of(*engine, options_.model_name, options_.max_sequences)),
      started_(absl::Now()) {}

// NOT_FOUND for a path that there is not, and for a method with code "method_not_allowed".
absl::StatusOr<const Service::Route*> Service::FindRoute(const HttpRequest& request) {
  bool has_path = false;
  for (const Route& route : Routes()) {
    if (!route.Matches(request.path())) continue;
    has_path = true;
    if (route.method == request.method) return &route;
    if (request.method == "HEAD" && absl::string_view(route.method) == "GET") return &route;
  }
  const std::string path = Quoted(View(request.path()));
  if (!has_path) return absl::NotFoundError(absl::StrCat("path: there is no ", path, " here"));
  return WithCode(absl::NotFoundError(absl::StrCat("method: ", Quoted(request.method),
                                                   " is not what ", path, " answers")),
                  "method_not_allowed", 405);
}

absl::Status Service::CheckKey(const HttpRequest& request) const {
  if (options_.api_key.empty()) return absl::OkStatus();
  absl::string_view given = request.authorization;
  if (!absl::StartsWithIgnoreCase(given, "Bearer ")) {
    return absl::UnauthenticatedError(
        "this server wants an API key, as the header \"Authorization: Bearer KEY\"");
  }
  given.remove_prefix(7);
  if (EqualsSecret(given, options_.api_key)) return absl::OkStatus();
  return absl::UnauthenticatedError("the API key is not this server's");
}

std::optional<HttpResponse> Service::RefusalOf(const HttpRequest& head,
                                               std::optional<uint64_t> body_size) {
  const absl::StatusOr<const Route*> route = FindRoute(head);
  if (!route.ok()) {
    HttpResponse response = ErrorResponse(route.status());
    if (response.status == 405) {
      std::vector<std::string> allowed;
      for (const Route& candidate : Routes()) {
        if (!candidate.Matches(head.path())) continue;
        allowed.push_back(candidate.method);
        if (allowed.back() == "GET") allowed.push_back("HEAD");
      }
      response.headers.emplace_back("Allow", absl::StrJoin(allowed, ", "));
    }
    return response;
  }
  if ((*route)->needs_key) {
    if (absl::Status status = CheckKey(head); !status.ok()) return ErrorResponse(status);
  }
  if ((*route)->makes_text && admission_.is_closed()) {
    return ErrorResponse(absl::UnavailableError("the server is stopping"));
  }
  const auto limit = static_cast<uint64_t>(options_.max_body_bytes);
  if (body_size.value_or(0) > limit) return ErrorResponse(BodyTooLarge());
  return std::nullopt;
}

void Service::CountAnswer(const HttpRequest& request, int status) {
  const absl::StatusOr<const Route*> route = FindRoute(request);
  metrics_.CountAnswer(route.ok() ? std::string((*route)->path) : "other", status);
}

absl::Status Service::BodyTooLarge() const {
  return WithCode(absl::InvalidArgumentError(
                      absl::StrCat("body: is larger than ", options_.max_body_bytes, " bytes")),
                  "body_too_large", 413);
}

Service::Reply Service::Handle(const HttpRequest& request, absl::Time now) {
  if (std::optional<HttpResponse> refusal = RefusalOf(request, request.body.size())) {
    return *std::move(refusal);
  }
  return (this->*(*FindRoute(request))->handle)(request, now);
}

// ---- What is known without the engine's thread ----

Service::Reply Service::Page(const HttpRequest&, absl::Time) {
  return HttpResponse{.status = 200,
                      .content_type = "text/html; charset=utf-8",
                      .body = std::string(IndexPage()),
                      .headers = {{"Content-Security-Policy", kPagePolicy},
                                  {"Referrer-Policy", "no-referrer"},
                                  {"Cache-Control", "no-cache"}}};
}

Service::Reply Service::PagePart(const HttpRequest& request, absl::Time) {
  const std::optional<PageFile> file = FindPageFile(request.path().substr(kPageFolder.size()));
  if (!file.has_value()) {
    return ErrorResponse(absl::NotFoundError(
        absl::StrCat("path: there is no ", Quoted(View(request.path())), " here")));
  }
  // Another version of the program has other files under the same names.
  return HttpResponse{.status = 200,
                      .content_type = std::string(file->content_type),
                      .body = std::string(file->contents),
                      .headers = {{"Cache-Control", "no-cache"}}};
}

Service::Reply Service::OpenApi(const HttpRequest&, absl::Time) {
  return HttpResponse{.status = 200, .body = std::string(OpenApiDocument())};
}

Service::Reply Service::Health(const HttpRequest&, absl::Time) {
  return JsonResponse({{"status", "ok"}});
}

Service::Reply Service::Ready(const HttpRequest&, absl::Time) {
  if (admission_.is_closed()) {
    return ErrorResponse(absl::UnavailableError("the server is stopping"));
  }
  return JsonResponse({{"status", "ready"}});
}

Service::Reply Service::MetricsText(const HttpRequest&, absl::Time) {
  return HttpResponse{.status = 200,
                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                      .body = metrics_.Text()};
}

Service::Reply Service::Models(const HttpRequest& request, absl::Time) {
  const ModelInfo target = engine_->target_info();
  const Json model = {
      {"id", model_.name},
      {"object", "model"},
      {"created", absl::ToUnixSeconds(started_)},
      {"owned_by", "tandem"},
      {"max_model_len", model_.MaxLength()},
      {"page_size", target.page_size},
      {"drafter", model_.drafter},
      {"chat_template", model_.chat_template.ok() ? Json(std::string(model_.chat_template->name()))
                                                  : Json(nullptr)}};
  constexpr std::string_view kOne = "/v1/models/";
  if (request.path().size() <= kOne.size()) {
    return JsonResponse({{"object", "list"}, {"data", Json::array({model})}});
  }
  const std::string name(request.path().substr(kOne.size()));
  if (absl::Status status = CheckModelName(name, model_); !status.ok()) {
    return ErrorResponse(status);
  }
  return JsonResponse(model);
}

// {"prompt": "...", "add_special_tokens": true, "special": "parse"} to {"tokens": [1, 2], ...}
Service::Reply Service::Tokenize(const HttpRequest& request, absl::Time) {
  const absl::StatusOr<Json> answer = TokenizeBody(request.body, model_);
  return answer.ok() ? JsonResponse(*answer) : ErrorResponse(answer.status());
}

Service::Reply Service::Detokenize(const HttpRequest& request, absl::Time) {
  const absl::StatusOr<Json> answer = DetokenizeBody(request.body, model_);
  return answer.ok() ? JsonResponse(*answer) : ErrorResponse(answer.status());
}

// ---- Text ----

Service::Reply Service::Completions(const HttpRequest& request, absl::Time now) {
  return Generate(ParseCompletionRequest(request.body, model_), "cmpl-", now);
}

Service::Reply Service::ChatCompletions(const HttpRequest& request, absl::Time now) {
  return Generate(ParseChatRequest(request.body, model_, now), "chatcmpl-", now);
}

Service::Reply Service::Generate(absl::StatusOr<ApiRequest> request, std::string_view id_prefix,
                                 absl::Time now) {
  if (!request.ok()) return ErrorResponse(request.status());
  const GenerationHost host = {.engine = engine_,
                               .model = &model_,
                               .metrics = &metrics_,
                               .admission = &admission_,
                               .max_unread_bytes = options_.max_unread_bytes};
  const std::string id = absl::StrCat(View(id_prefix), absl::Hex(absl::ToUnixNanos(started_)), "-",
                                      num_requests_.fetch_add(1));
  auto generation = Generation::Start(host, *std::move(request), id, now);
  if (!generation.ok()) return ErrorResponse(generation.status());
  return *std::move(generation);
}

}  // namespace tandem
