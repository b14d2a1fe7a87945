#include "server/api/service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "server/api/chat_fields.h"
#include "server/api/draft_text_endpoints.h"
#include "server/api/openapi.h"
#include "server/api/token_endpoints.h"
#include "server/api/web_files.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// The page's scripts and styles come from this server, and it connects to no other.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

constexpr std::string_view kPageFolder = "/page/";

// The number of bodies of the maximum size that may be held at once.
constexpr int64_t kMaxLargeBodies = 16;

// Paths of other inference APIs that this server does not have. A slash at the end includes all
// paths below.
constexpr std::string_view kNotServed[] = {"/v1/embeddings",
                                           "/v1/rerank",
                                           "/v1/score",
                                           "/v1/audio/",
                                           "/v1/images/",
                                           "/v1/moderations",
                                           "/v1/files",
                                           "/v1/batches",
                                           "/v1/fine_tuning/",
                                           "/v1/assistants",
                                           "/v1/threads",
                                           "/v1/realtime",
                                           "/v1/vector_stores",
                                           "/rerank",
                                           "/v1/responses/",
                                           "/v1/load_lora_adapter",
                                           "/score",
                                           "/pooling",
                                           "/classify"};

bool IsBelow(std::string_view path, std::string_view prefix) {
  return prefix.back() == '/' ? absl::StartsWith(View(path), View(prefix)) : path == prefix;
}

absl::Status NoSuchPath(const std::string& path) {
  const bool is_known = std::any_of(std::begin(kNotServed), std::end(kNotServed),
                                    [&](std::string_view one) { return IsBelow(path, one); });
  if (is_known) {
    return WithCode(
        FieldError("path",
                   absl::StrCat(Quoted(path),
                                " is not served here: this server generates text and stores "
                                "nothing; /openapi.json lists its endpoints")),
        "not_served", 404);
  }
  return WithCode(FieldError("path", absl::StrCat("the path ", Quoted(path), " does not exist")),
                  "not_found", 404);
}

HttpResponse JsonResponse(const Json& json) { return {.body = DumpJson(json)}; }

HttpResponse HtmlPage(std::string_view html) {
  return {.status = 200,
          .content_type = "text/html; charset=utf-8",
          .body = std::string(html),
          .headers = {{"Content-Security-Policy", kPagePolicy},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

// Constant-time comparison: the time depends only on the length of `given`.
bool EqualsSecret(absl::string_view given, absl::string_view secret) {
  size_t difference = given.size() ^ secret.size();
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  }
  return difference == 0;
}

// Ignores the time, which only chat templates print.
absl::StatusOr<ApiRequest> ParseCompletion(absl::string_view body, const ServedModel& model,
                                           absl::Time /*now*/) {
  return ParseCompletionRequest(body, model);
}

SiteOptions SiteOptionsOf(const ServiceOptions& options) {
  SiteOptions sites = options.sites;
  sites.has_key = !options.api_key.empty();
  return sites;
}

}  // namespace

struct Route {
  std::string_view method;
  std::string_view path;  // a path that ends with a slash matches all paths below it
  bool needs_key;
  Service::Reply (Service::*handle)(const HttpRequest&);
  bool is_probe = false;
  // Parses a request for text, which is refused while the server stops, and may compile a
  // constraint.
  absl::StatusOr<ApiRequest> (*parse)(absl::string_view, const ServedModel&, absl::Time) = nullptr;
  std::string_view id_prefix = "";  // of its answer's id
  ErrorForm errors = ErrorForm::kOpenAi;
  bool is_slow = false;  // Handle may block, as it may with `parse`

  bool Matches(std::string_view other) const {
    if (path.size() > 1 && path.back() == '/') {
      return absl::StartsWith(View(other), View(path)) && other.size() > path.size();
    }
    return path == other;
  }
};

absl::Span<const Route> Service::Routes() {
  static constexpr Route kRoutes[] = {
      {"GET", "/", false, &Service::Page},
      {"GET", "/docs", false, &Service::Docs},
      {"GET", kPageFolder, false, &Service::PagePart},
      {"GET", "/health", false, &Service::Health, true},
      {"GET", "/ready", false, &Service::Ready, true},
      {"GET", "/metrics", false, &Service::MetricsText, true},
      {"GET", "/openapi.json", false, &Service::OpenApi},
      {"GET", "/version", true, &Service::Version},
      {"GET", "/v1/models", true, &Service::Models},
      {"GET", "/v1/models/", true, &Service::Models},
      {"GET", "/tokenizer_info", true, &Service::TokenizerInfo},
      {"POST", "/tokenize", true, &Service::Tokenize},
      {"POST", "/detokenize", true, &Service::Detokenize},
      {"GET", "/v1/draft_texts", true, &Service::DraftTexts},
      {"GET", "/v1/draft_texts/", true, &Service::DraftTexts},
      {"POST", "/v1/draft_texts", true, &Service::AddDraftText, false, nullptr, "",
       ErrorForm::kOpenAi, /*is_slow=*/true},
      {"DELETE", "/v1/draft_texts/", true, &Service::RemoveDraftText},
      {"POST", "/v1/completions", true, &Service::Generate, false, ParseCompletion, "cmpl-"},
      {"POST", "/v1/chat/completions", true, &Service::Generate, false, ParseChatRequest,
       "chatcmpl-"},
      {"POST", "/v1/responses", true, &Service::Generate, false, ParseResponsesRequest, "resp_"},
      {"POST", "/v1/messages", true, &Service::Generate, false, ParseMessagesRequest, "msg_",
       ErrorForm::kAnthropic},
      {"POST", "/v1/messages/count_tokens", true, &Service::CountTokens, false,
       ParseCountTokensRequest, "", ErrorForm::kAnthropic},
      {"POST", "/v1/completions/render", true, &Service::Render, false, ParseCompletion},
      {"POST", "/v1/chat/completions/render", true, &Service::Render, false, ParseChatRequest}};
  return kRoutes;
}

Service::Service(Engine* engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      sites_(SiteOptionsOf(options_)),
      admission_(options_.max_sequences),
      large_bodies_(kMaxLargeBodies * options_.max_body_bytes),
      metrics_(engine, {.names = options_.metrics_names,
                        .model_name = options_.model_name,
                        .prefix_cache = options_.prefix_cache}),
      model_(ServedModel::Of(*engine, options_.model_name, admission_.max_per_request(),
                             options_.max_answer_bytes)),
      started_(absl::Now()) {
  model_.sampling = options_.sampling;
  model_.fingerprint = options_.system_fingerprint;
  model_.is_strict = options_.strict_requests;
  model_.splits_reasoning = options_.splits_reasoning;
}

const Route* Service::RouteOf(const HttpRequest& head) {
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  for (const Route& route : Routes()) {
    if (route.method == method && route.Matches(head.path)) return &route;
  }
  return nullptr;
}

// Returns 404 for an unknown path, 405 for a method that the path does not have. OPTIONS has no
// route, but is answered here.
HttpResponse Service::AnswerWithoutRoute(const HttpRequest& head) const {
  if (head.path.empty()) {
    return ErrorResponse(FieldError(
        "path",
        absl::StrCat(Quoted(head.target), " has a % that is not before two hexadecimal digits")));
  }
  const absl::Span<const Route> routes = Routes();
  const bool has_path = std::any_of(routes.begin(), routes.end(),
                                    [&](const Route& route) { return route.Matches(head.path); });
  if (head.method == "OPTIONS" && (has_path || head.path == "*")) return Options(head);
  if (!has_path) return ErrorResponse(NoSuchPath(head.path));
  HttpResponse refusal = ErrorResponse(
      WithCode(FieldError("method", absl::StrCat(Quoted(head.method), " is not a method that ",
                                                 Quoted(head.path), " supports")),
               "method_not_allowed", 405));
  refusal.headers.emplace_back("Allow", AllowedMethods(head));
  return refusal;
}

// Returns for example "GET, HEAD, OPTIONS"; for "*", the methods of all paths.
std::string Service::AllowedMethods(const HttpRequest& head) {
  bool has_get = false;
  bool has_post = false;
  bool has_delete = false;
  for (const Route& route : Routes()) {
    if (head.path != "*" && !route.Matches(head.path)) continue;
    (route.method == "GET" ? has_get : route.method == "POST" ? has_post : has_delete) = true;
  }
  return absl::StrCat(has_get ? "GET, HEAD, " : "", has_post ? "POST, " : "",
                      has_delete ? "DELETE, " : "", "OPTIONS");
}

HttpResponse Service::Options(const HttpRequest& head) const {
  const std::string methods = AllowedMethods(head);
  if (SiteRules::IsPreflight(head)) return sites_.PreflightAnswer(head, methods);
  return {.status = 204, .content_type = "", .headers = {{"Allow", methods}}};
}

std::vector<std::pair<std::string, std::string>> Service::Headers(const HttpRequest& head) const {
  auto headers = sites_.Headers(head);
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  headers.emplace_back(
      "Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()));
  if (!head.id.empty()) headers.emplace_back("x-request-id", head.id);
  return headers;
}

std::string Service::RequestIdOf(std::string_view given) {
  constexpr size_t kLongest = 128;
  const bool is_allowed = !given.empty() && given.size() <= kLongest &&
                          std::all_of(given.begin(), given.end(), absl::ascii_isgraph);
  if (is_allowed) return std::string(given);
  return absl::StrCat("req-", absl::Hex(absl::ToUnixNanos(started_)), "-", num_named_.fetch_add(1));
}

ErrorForm Service::ErrorFormOf(const HttpRequest& head) {
  return head.route == nullptr ? ErrorForm::kOpenAi : head.route->errors;
}

bool Service::IsProbe(const HttpRequest& head) {
  return head.route != nullptr && head.route->is_probe;
}

bool Service::MayBlock(const HttpRequest& head) {
  return head.route->parse != nullptr || head.route->is_slow;
}

absl::Status Service::CheckKey(const HttpRequest& request) const {
  if (options_.api_key.empty()) return absl::OkStatus();
  absl::string_view given = request.authorization;
  if (given.empty() && !request.api_key.empty()) {
    given = request.api_key;
  } else if (absl::StartsWithIgnoreCase(given, "Bearer ")) {
    given.remove_prefix(7);
  } else {
    return absl::UnauthenticatedError(
        "this server requires an API key in the header \"Authorization: Bearer KEY\" or "
        "\"x-api-key: KEY\"");
  }
  if (EqualsSecret(given, options_.api_key)) return absl::OkStatus();
  return absl::UnauthenticatedError("the API key is wrong");
}

absl::Status Service::CheckHead(const HttpRequest& head, std::optional<uint64_t> body_size) {
  if (head.route->needs_key) RETURN_IF_ERROR(CheckKey(head));
  RETURN_IF_ERROR(SiteRules::CheckContentType(head));
  if (MayBlock(head)) {
    RETURN_IF_ERROR(engine_->health());
    if (admission_.is_closed()) return ServerIsStopping();
  }
  const auto limit = static_cast<uint64_t>(options_.max_body_bytes);
  return body_size.value_or(0) > limit ? BodyTooLarge() : absl::OkStatus();
}

std::optional<HttpResponse> Service::AnswerToHead(const HttpRequest& head,
                                                  std::optional<uint64_t> body_size) {
  if (absl::Status status = sites_.Check(head); !status.ok()) {
    return ErrorResponse(status, ErrorFormOf(head));
  }
  if (head.route == nullptr) return AnswerWithoutRoute(head);
  if (absl::Status status = CheckHead(head, body_size); !status.ok()) {
    return ErrorResponse(status, ErrorFormOf(head));
  }
  return std::nullopt;
}

void Service::CountAnswer(const HttpRequest& request, int status) {
  metrics_.CountAnswer(request.route == nullptr ? "other" : std::string(request.route->path),
                       status);
}

absl::Status Service::BodyTooLarge() const {
  return WithCode(
      FieldError("body", absl::StrCat("is larger than ", options_.max_body_bytes, " bytes")),
      "body_too_large", 413);
}

Service::Reply Service::Handle(const HttpRequest& request) {
  return (this->*request.route->handle)(request);
}

// ---- Answers that do not use the engine's thread ----

Service::Reply Service::Page(const HttpRequest&) { return HtmlPage(IndexPage()); }
Service::Reply Service::Docs(const HttpRequest&) { return HtmlPage(DocsPage()); }

Service::Reply Service::PagePart(const HttpRequest& request) {
  const std::optional<PageFile> file =
      FindPageFile(std::string_view(request.path).substr(kPageFolder.size()));
  if (!file.has_value()) return ErrorResponse(NoSuchPath(request.path));
  // Not cached: another version of the program has other files with the same names.
  return HttpResponse{.status = 200,
                      .content_type = std::string(file->content_type),
                      .body = std::string(file->contents),
                      .headers = {{"Cache-Control", "no-cache"}}};
}

Service::Reply Service::OpenApi(const HttpRequest&) {
  return HttpResponse{.status = 200, .body = OpenApiDocument()};
}

Service::Reply Service::Health(const HttpRequest&) {
  if (absl::Status health = engine_->health(); !health.ok()) return ErrorResponse(health);
  return HttpResponse{.body = R"({"status":"ok"})"};
}

Service::Reply Service::Ready(const HttpRequest&) {
  if (absl::Status health = engine_->health(); !health.ok()) return ErrorResponse(health);
  if (admission_.is_closed()) {
    return ErrorResponse(ServerIsStopping());
  }
  return HttpResponse{.body = R"({"status":"ready"})"};
}

Service::Reply Service::MetricsText(const HttpRequest&) {
  return HttpResponse{.status = 200,
                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                      .body = metrics_.Text()};
}

Service::Reply Service::Version(const HttpRequest&) {
  return JsonResponse({{"version", options_.version}});
}

Service::Reply Service::Models(const HttpRequest& request) {
  const ModelInfo target = engine_->target_info();
  const Json model = {
      {"id", model_.name},
      {"object", "model"},
      {"created", absl::ToUnixSeconds(started_)},
      {"owned_by", "tandem"},
      {"max_model_len", model_.MaxLength()},
      {"page_size", target.page_size},
      {"drafter", model_.drafter},
      {"drafters", model_.drafters},
      {"parallel_draft", model_.parallel_draft},
      {"chat_template",
       model_.chat_template.ok() ? Json(std::string(model_.chat_template->name())) : Json(nullptr)},
      {"has_chat_template", model_.HasChatTemplate()},
      {"has_reasoning", model_.reasoning.has_value()}};
  constexpr std::string_view kOne = "/v1/models/";
  if (request.path.size() <= kOne.size()) {
    return JsonResponse({{"object", "list"}, {"data", Json::array({model})}});
  }
  const std::string name = request.path.substr(kOne.size());
  if (absl::Status status = CheckModelName(name, model_); !status.ok()) {
    return ErrorResponse(status);
  }
  return JsonResponse(model);
}

Service::Reply Service::TokenizerInfo(const HttpRequest& /*request*/) {
  return TextAnswer(model_.tokenizer_info, IgnoredFields());
}

// {"prompt": "...", "add_special_tokens": true, "special": "parse"} to {"tokens": [1, 2], ...}
Service::Reply Service::Tokenize(const HttpRequest& request) {
  IgnoredFields ignored;
  absl::StatusOr<TokenizeAnswer> answer = TokenizeBody(request.body, model_, absl::Now(), &ignored);
  if (!answer.ok()) return ErrorResponse(answer.status());
  LogIgnored(ignored);
  HttpResponse response{.body = std::move(answer->body), .headers = ignored.Headers()};
  if (answer->has_generic_tools) {
    response.headers.emplace_back(kToolFormatHeader, kGenericToolFormat);
  }
  return response;
}

Service::Reply Service::Render(const HttpRequest& request) {
  const absl::StatusOr<ApiRequest> parsed = request.route->parse(request.body, model_, absl::Now());
  if (!parsed.ok()) return ErrorResponse(parsed.status());
  return TextAnswer(RenderedBody(*parsed), parsed->ignored);
}

Service::Reply Service::Detokenize(const HttpRequest& request) {
  IgnoredFields ignored;
  return TextAnswer(DetokenizeBody(request.body, model_, &ignored), ignored);
}

Service::Reply Service::AddDraftText(const HttpRequest& request) {
  IgnoredFields ignored;
  return TextAnswer(tandem::AddDraftText(request.body, model_.is_strict, engine_, &ignored),
                    ignored);
}

Service::Reply Service::DraftTexts(const HttpRequest& request) {
  return TextAnswer(DraftTextsBody(request, *engine_), IgnoredFields());
}

Service::Reply Service::RemoveDraftText(const HttpRequest& request) {
  return TextAnswer(tandem::RemoveDraftText(request, engine_), IgnoredFields());
}

Service::Reply Service::TextAnswer(absl::StatusOr<std::string> answer,
                                   const IgnoredFields& ignored) {
  if (!answer.ok()) return ErrorResponse(answer.status());
  LogIgnored(ignored);
  return HttpResponse{.body = *std::move(answer), .headers = ignored.Headers()};
}

void Service::LogIgnored(const IgnoredFields& fields) {
  for (const std::string& line : ignored_log_.NewLines(fields)) Log(LogLevel::kWarning, line);
}

// ---- Text ----

// {"messages": [...]} to {"input_tokens": 12}
Service::Reply Service::CountTokens(const HttpRequest& http) {
  const absl::StatusOr<ApiRequest> parsed = http.route->parse(http.body, model_, absl::Now());
  if (!parsed.ok()) return ErrorResponse(parsed.status(), http.route->errors);
  const Json answer = {{"input_tokens", parsed->prompts.front().size()}};
  return TextAnswer(DumpJson(answer), parsed->ignored);
}

Service::Reply Service::Generate(const HttpRequest& http) {
  absl::StatusOr<ApiRequest> request = http.route->parse(http.body, model_, absl::Now());
  if (!request.ok()) return ErrorResponse(request.status(), http.route->errors);
  request->request.request_id = http.id;
  request->request.client = http.client;
  LogIgnored(request->ignored);
  const GenerationHost host = {.engine = engine_,
                               .model = &model_,
                               .metrics = &metrics_,
                               .admission = &admission_,
                               .max_unread_bytes = options_.max_unread_bytes};
  const AnswerStamp stamp = {
      .id = absl::StrCat(View(http.route->id_prefix), absl::Hex(absl::ToUnixNanos(started_)), "-",
                         num_requests_.fetch_add(1)),
      .created = absl::ToUnixSeconds(absl::Now())};
  auto generation = ServedRequest::Start(host, *std::move(request), stamp, http.received);
  if (!generation.ok()) return ErrorResponse(generation.status(), http.route->errors);
  return *std::move(generation);
}

}  // namespace tandem
