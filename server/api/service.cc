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
#include "server/http/request_target.h"
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
constexpr std::string_view kModelPath = "/v1/models/";

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

PairSetOptions PairSetOptionsOf(const ServiceOptions& options) {
  return {.metrics_names = options.metrics_names,
          .max_answer_bytes = options.max_answer_bytes,
          .is_strict = options.strict_requests,
          .splits_reasoning = options.splits_reasoning,
          .name = options.model_name,
          .sampling = options.sampling,
          .system_fingerprint = options.system_fingerprint,
          .max_sequences = options.max_sequences,
          .prefix_cache = options.prefix_cache,
          .sources = options.pairs,
          .host_bytes = options.pair_memory_bytes,
          .on_all_lost = options.on_all_pairs_lost};
}

SiteOptions SiteOptionsOf(const ServiceOptions& options) {
  SiteOptions sites = options.sites;
  sites.has_key = !options.api_key.empty();
  return sites;
}

}  // namespace

// Where a request names its pair.
enum class PairIn {
  kNone,        // it needs none
  kBody,        // the member `model`
  kQuery,       // the parameter `model`
  kPathLoad,    // the path; the pair is loaded first
  kPathUnload,  // the path; the pair is unloaded first, and the request has none
};

struct Route {
  std::string_view method;
  std::string_view path;  // a path that ends with a slash matches all paths below it
  bool needs_key;
  Service::Reply (Service::*handle)(const HttpRequest&, const PairLease&);
  PairIn pair_in = PairIn::kNone;
  bool is_probe = false;
  // Parses a request for text, which is refused while the server stops, and may compile a
  // constraint.
  absl::StatusOr<ApiRequest> (*parse)(absl::string_view, const ServedModel&, absl::Time) = nullptr;
  std::string_view id_prefix = "";  // of its answer's id
  ErrorForm errors = ErrorForm::kOpenAi;
  bool is_slow = false;            // Handle may block, as it may with `parse`
  std::string_view path_end = "";  // of a path that ends with a slash: after the name

  bool Matches(std::string_view other) const {
    if (path.size() > 1 && path.back() == '/') {
      return absl::StartsWith(View(other), View(path)) &&
             absl::EndsWith(View(other), View(path_end)) &&
             other.size() > path.size() + path_end.size();
    }
    return path == other;
  }
  // The part of a matching path that the route does not give.
  std::string NameIn(std::string_view other) const {
    return std::string(other.substr(path.size(), other.size() - path.size() - path_end.size()));
  }
};

absl::Span<const Route> Service::Routes() {
  constexpr auto kNone = PairIn::kNone;
  constexpr auto kBody = PairIn::kBody;
  constexpr auto kQuery = PairIn::kQuery;
  constexpr auto kOpenAi = ErrorForm::kOpenAi;
  constexpr auto kAnthropic = ErrorForm::kAnthropic;
  static constexpr Route kRoutes[] = {
      {"GET", "/", false, &Service::Page},
      {"GET", "/docs", false, &Service::Docs},
      {"GET", kPageFolder, false, &Service::PagePart},
      {"GET", "/health", false, &Service::Health, kNone, true},
      {"GET", "/ready", false, &Service::Ready, kNone, true},
      {"GET", "/metrics", false, &Service::MetricsText, kNone, true},
      {"GET", "/openapi.json", false, &Service::OpenApi},
      {"GET", "/version", true, &Service::Version},
      {"GET", "/v1/models", true, &Service::Models},
      {"GET", kModelPath, true, &Service::DescribeModel},
      {"POST", kModelPath, true, &Service::DescribeModel, PairIn::kPathLoad, false, nullptr, "",
       kOpenAi, false, "/load"},
      {"POST", kModelPath, true, &Service::DescribeModel, PairIn::kPathUnload, false, nullptr, "",
       kOpenAi, false, "/unload"},
      {"GET", "/tokenizer_info", true, &Service::TokenizerInfo, kQuery},
      {"POST", "/tokenize", true, &Service::Tokenize, kBody},
      {"POST", "/detokenize", true, &Service::Detokenize, kBody},
      {"GET", "/v1/draft_texts", true, &Service::DraftTexts, kQuery},
      {"GET", "/v1/draft_texts/", true, &Service::DraftTexts, kQuery},
      {"POST", "/v1/draft_texts", true, &Service::AddDraftText, kBody, false, nullptr, "", kOpenAi,
       /*is_slow=*/true},
      {"DELETE", "/v1/draft_texts/", true, &Service::RemoveDraftText, kQuery},
      {"POST", "/v1/completions", true, &Service::Generate, kBody, false, ParseCompletion, "cmpl-"},
      {"POST", "/v1/chat/completions", true, &Service::Generate, kBody, false, ParseChatRequest,
       "chatcmpl-"},
      {"POST", "/v1/responses", true, &Service::Generate, kBody, false, ParseResponsesRequest,
       "resp_"},
      {"POST", "/v1/messages", true, &Service::Generate, kBody, false, ParseMessagesRequest, "msg_",
       kAnthropic},
      {"POST", "/v1/messages/count_tokens", true, &Service::CountTokens, kBody, false,
       ParseCountTokensRequest, "", kAnthropic},
      {"POST", "/v1/completions/render", true, &Service::Render, kBody, false, ParseCompletion},
      {"POST", "/v1/chat/completions/render", true, &Service::Render, kBody, false,
       ParseChatRequest}};
  return kRoutes;
}

Service::Service(Engine* engine, ServiceOptions options)
    : options_(std::move(options)),
      sites_(SiteOptionsOf(options_)),
      large_bodies_(kMaxLargeBodies * options_.max_body_bytes),
      started_(absl::Now()),
      pairs_(engine, PairSetOptionsOf(options_)) {}

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      sites_(SiteOptionsOf(options_)),
      large_bodies_(kMaxLargeBodies * options_.max_body_bytes),
      started_(absl::Now()),
      pairs_(PairSetOptionsOf(options_)) {}

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

bool Service::MayBlock(const HttpRequest& head) const {
  const bool may_wait = pairs_.has_several() && head.route->pair_in != PairIn::kNone;
  return head.route->parse != nullptr || head.route->is_slow || may_wait;
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
    RETURN_IF_ERROR(pairs_.health());
    if (pairs_.is_closed()) return ServerIsStopping();
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
  const Route* const route = request.route;
  answers_.Count(
      route == nullptr ? "other" : absl::StrCat(View(route->path), View(route->path_end)), status);
}

absl::Status Service::BodyTooLarge() const {
  return WithCode(
      FieldError("body", absl::StrCat("is larger than ", options_.max_body_bytes, " bytes")),
      "body_too_large", 413);
}

std::optional<absl::StatusOr<PairLease>> Service::PairOf(const HttpRequest& request,
                                                         PairSet::Waiter waiter,
                                                         absl::FunctionRef<void()> on_stream) {
  const Route& route = *request.route;
  std::string name;
  switch (route.pair_in) {
    case PairIn::kNone:
      return PairLease();
    case PairIn::kPathLoad:
      return pairs_.Acquire(route.NameIn(request.path), PairSet::Use::kLoad, std::move(waiter));
    case PairIn::kPathUnload:
      return pairs_.Unload(route.NameIn(request.path), std::move(waiter));
    case PairIn::kQuery:
      if (pairs_.has_several()) name = QueryValue(request.target, "model").value_or("");
      break;
    case PairIn::kBody:
      if (!pairs_.has_several()) break;  // the parser checks it
      name = TextMember(request.body, "model");
      // An error in the text comes before that of a missing name.
      if (!name.empty()) break;
      if (absl::Status status = ParseJsonValue(request.body, "body").status(); !status.ok()) {
        return status;
      }
  }
  auto pair = pairs_.Acquire(name, PairSet::Use::kRequest, nullptr);
  if (pair.has_value()) return pair;
  // Searching the body takes as long as parsing it: 0.5 ms for 60 KB. Once the waiter is handed
  // over, another thread may free the body.
  const bool is_stream = route.handle == &Service::Generate && FlagMember(request.body, "stream");
  pair = pairs_.Acquire(name, PairSet::Use::kRequest, std::move(waiter));
  if (!pair.has_value() && is_stream) on_stream();
  return pair;
}

Service::Reply Service::Handle(const HttpRequest& request, absl::StatusOr<PairLease> pair) {
  if (!pair.ok()) return ErrorResponse(pair.status(), request.route->errors);
  return (this->*request.route->handle)(request, *pair);
}

Service::Reply Service::Handle(const HttpRequest& request) {
  return Handle(request, *PairOf(request, nullptr, [] {}));
}

// ---- Answers that do not use the engine's thread ----

Service::Reply Service::Page(const HttpRequest&, const PairLease&) { return HtmlPage(IndexPage()); }
Service::Reply Service::Docs(const HttpRequest&, const PairLease&) { return HtmlPage(DocsPage()); }

Service::Reply Service::PagePart(const HttpRequest& request, const PairLease&) {
  const std::optional<PageFile> file =
      FindPageFile(std::string_view(request.path).substr(kPageFolder.size()));
  if (!file.has_value()) return ErrorResponse(NoSuchPath(request.path));
  // Not cached: another version of the program has other files with the same names.
  return HttpResponse{.status = 200,
                      .content_type = std::string(file->content_type),
                      .body = std::string(file->contents),
                      .headers = {{"Cache-Control", "no-cache"}}};
}

Service::Reply Service::OpenApi(const HttpRequest&, const PairLease&) {
  return HttpResponse{.status = 200, .body = OpenApiDocument()};
}

Service::Reply Service::Health(const HttpRequest&, const PairLease&) {
  if (absl::Status health = pairs_.health(); !health.ok()) return ErrorResponse(health);
  return HttpResponse{.body = R"({"status":"ok"})"};
}

Service::Reply Service::Ready(const HttpRequest&, const PairLease&) {
  if (absl::Status health = pairs_.health(); !health.ok()) return ErrorResponse(health);
  if (pairs_.is_closed()) {
    return ErrorResponse(ServerIsStopping());
  }
  if (!pairs_.is_ready()) {
    return ErrorResponse(
        WithCode(absl::UnavailableError("models are being loaded"), "loading", 503));
  }
  return HttpResponse{.body = R"({"status":"ready"})"};
}

Service::Reply Service::MetricsText(const HttpRequest&, const PairLease&) {
  return HttpResponse{.status = 200,
                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                      .body = pairs_.MetricsText(answers_)};
}

Service::Reply Service::Version(const HttpRequest&, const PairLease&) {
  return JsonResponse({{"version", options_.version}});
}

Service::Reply Service::Models(const HttpRequest&, const PairLease&) {
  return JsonResponse({{"object", "list"}, {"data", pairs_.DescribeAll()}});
}

Service::Reply Service::DescribeModel(const HttpRequest& request, const PairLease&) {
  const absl::StatusOr<Json> model = pairs_.Describe(request.route->NameIn(request.path));
  if (!model.ok()) return ErrorResponse(model.status());
  return JsonResponse(*model);
}

Service::Reply Service::TokenizerInfo(const HttpRequest&, const PairLease& pair) {
  return TextAnswer(pair->model.tokenizer_info, IgnoredFields());
}

// {"prompt": "...", "add_special_tokens": true, "special": "parse"} to {"tokens": [1, 2], ...}
Service::Reply Service::Tokenize(const HttpRequest& request, const PairLease& pair) {
  IgnoredFields ignored;
  absl::StatusOr<TokenizeAnswer> answer =
      TokenizeBody(request.body, pair->model, absl::Now(), &ignored);
  if (!answer.ok()) return ErrorResponse(answer.status());
  LogIgnored(ignored);
  HttpResponse response{.body = std::move(answer->body), .headers = ignored.Headers()};
  if (answer->has_generic_tools) {
    response.headers.emplace_back(kToolFormatHeader, kGenericToolFormat);
  }
  return response;
}

Service::Reply Service::Render(const HttpRequest& request, const PairLease& pair) {
  const absl::StatusOr<ApiRequest> parsed =
      request.route->parse(request.body, pair->model, absl::Now());
  if (!parsed.ok()) return ErrorResponse(parsed.status());
  return TextAnswer(RenderedBody(*parsed), parsed->ignored);
}

Service::Reply Service::Detokenize(const HttpRequest& request, const PairLease& pair) {
  IgnoredFields ignored;
  return TextAnswer(DetokenizeBody(request.body, pair->model, &ignored), ignored);
}

Service::Reply Service::AddDraftText(const HttpRequest& request, const PairLease& pair) {
  IgnoredFields ignored;
  return TextAnswer(tandem::AddDraftText(request.body, pair->model, pair->engine, &ignored),
                    ignored);
}

Service::Reply Service::DraftTexts(const HttpRequest& request, const PairLease& pair) {
  return TextAnswer(DraftTextsBody(request, *pair->engine), IgnoredFields());
}

Service::Reply Service::RemoveDraftText(const HttpRequest& request, const PairLease& pair) {
  return TextAnswer(tandem::RemoveDraftText(request, pair->engine), IgnoredFields());
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
Service::Reply Service::CountTokens(const HttpRequest& http, const PairLease& pair) {
  const absl::StatusOr<ApiRequest> parsed = http.route->parse(http.body, pair->model, absl::Now());
  if (!parsed.ok()) return ErrorResponse(parsed.status(), http.route->errors);
  const Json answer = {{"input_tokens", parsed->prompts.front().size()}};
  return TextAnswer(DumpJson(answer), parsed->ignored);
}

Service::Reply Service::Generate(const HttpRequest& http, const PairLease& pair) {
  absl::StatusOr<ApiRequest> request = http.route->parse(http.body, pair->model, absl::Now());
  if (!request.ok()) return ErrorResponse(request.status(), http.route->errors);
  request->request.request_id = http.id;
  request->request.client = http.client;
  LogIgnored(request->ignored);
  const GenerationHost host = {.pair = pair, .max_unread_bytes = options_.max_unread_bytes};
  const AnswerStamp stamp = {
      .id = absl::StrCat(View(http.route->id_prefix), absl::Hex(absl::ToUnixNanos(started_)), "-",
                         num_requests_.fetch_add(1)),
      .created = absl::ToUnixSeconds(absl::Now())};
  auto generation = ServedRequest::Start(host, *std::move(request), stamp, http.received);
  if (!generation.ok()) return ErrorResponse(generation.status(), http.route->errors);
  return *std::move(generation);
}

}  // namespace tandem
