#include "server/api/site_rules.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/json/json_text.h"
#include "base/net/beast.h"
#include "base/status_macros.h"
#include "server/api/answer_writer.h"
#include "server/api/api_error.h"
#include "server/api/chat_fields.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr char kAny[] = "*";

bool HasIgnoringCase(const std::vector<std::string>& list, absl::string_view text) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& one) { return absl::EqualsIgnoreCase(one, text); });
}

// Returns "localhost" for "localhost.:8080", "::1" for "[::1]:8080"; nothing if `host` is not a
// host and port.
std::optional<std::string> HostName(absl::string_view host) {
  size_t end = host.find(':');
  if (absl::ConsumePrefix(&host, "[")) {
    end = host.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
  }
  absl::string_view name = host.substr(0, end);
  absl::string_view port = host.substr(std::min(end, host.size()));
  absl::ConsumePrefix(&port, "]");
  if (!port.empty() && !absl::ConsumePrefix(&port, ":")) return std::nullopt;
  if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit)) return std::nullopt;
  absl::ConsumeSuffix(&name, ".");
  if (name.empty()) return std::nullopt;
  return std::string(name);
}

bool IsAddress(const std::string& text) {
  beast::error_code error;
  net::ip::make_address(text, error);
  return !error;
}

// Browsers resolve "localhost" and names below it without DNS.
bool IsLoopback(absl::string_view name) {
  if (absl::EqualsIgnoreCase(name, "localhost")) return true;
  if (absl::EndsWithIgnoreCase(name, ".localhost")) return true;
  beast::error_code error;
  const auto address = net::ip::make_address(std::string(name), error);
  return !error && address.is_loopback();
}

// Returns "a:8080" for "http://a:8080"; empty if `origin` has no authority, as for "null".
absl::string_view AuthorityOf(absl::string_view origin) {
  const size_t end = origin.find("://");
  return end == absl::string_view::npos ? "" : origin.substr(end + 3);
}

bool IsJson(absl::string_view content_type) {
  const absl::string_view type =
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/json");
}

}  // namespace

absl::Status SiteOptions::Validate() const {
  for (const std::string& host : allowed_hosts) {
    const bool is_name = HostName(host) == host && !absl::StrContains(host, '/');
    if (host == kAny || is_name || IsAddress(host)) continue;
    return FieldError("--allowed-hosts",
                      absl::StrCat(Quoted(host), " is not *, a name or an address without a port"));
  }
  for (const std::string& origin : cors_origins) {
    const absl::string_view authority = AuthorityOf(origin);
    const bool is_origin = HostName(authority).has_value() && !absl::StrContains(authority, '/');
    if (origin == kAny || is_origin) continue;
    return FieldError("--cors-origins",
                      absl::StrCat(Quoted(origin),
                                   " is not * or an origin such as https://app.example or "
                                   "http://localhost:3000"));
  }
  return absl::OkStatus();
}

absl::Status SiteRules::Check(const HttpRequest& head) const {
  RETURN_IF_ERROR(CheckHost(head.host));
  return CheckOrigin(head);
}

// Only HTTP/1.0 requests may lack a host, and browsers do not speak HTTP/1.0.
absl::Status SiteRules::CheckHost(absl::string_view host) const {
  const std::vector<std::string>& allowed = options_.allowed_hosts;
  const bool is_bound = (options_.is_loopback && !options_.has_key) || !allowed.empty();
  if (!is_bound || host.empty() || HasIgnoringCase(allowed, kAny)) return absl::OkStatus();
  const std::optional<std::string> name = HostName(host);
  const bool is_allowed =
      name.has_value() && (IsLoopback(*name) || absl::EqualsIgnoreCase(*name, options_.own_host) ||
                           HasIgnoringCase(allowed, *name));
  if (is_allowed) return absl::OkStatus();
  return WithCode(absl::InvalidArgumentError(
                      absl::StrCat("the header Host is ", Quoted(host),
                                   ", allowed: localhost and the server's --allowed-hosts")),
                  "host_not_allowed", 403);
}

absl::Status SiteRules::CheckOrigin(const HttpRequest& head) const {
  const bool only_reads = head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS";
  const bool is_free = only_reads ? !IsPreflight(head) : options_.has_key;
  if (head.origin.empty() || is_free) return absl::OkStatus();
  const absl::string_view authority = AuthorityOf(head.origin);
  const bool is_own = !authority.empty() && absl::EqualsIgnoreCase(authority, head.host);
  if (is_own || IsCorsOrigin(head.origin)) return absl::OkStatus();
  return WithCode(absl::InvalidArgumentError(
                      absl::StrCat("the header Origin is ", Quoted(head.origin),
                                   ", allowed: the server's own pages and its --cors-origins")),
                  "origin_not_allowed", 403);
}

// Bodies must be declared as JSON, except for the default type of curl -d, and for clients that
// send no type. Neither exception applies to browsers, because they send both types for pages of
// any origin without a preflight. A browser always sends the origin of a page that is not the
// server's own.
absl::Status SiteRules::CheckContentType(const HttpRequest& head) {
  if (head.method != "POST" || IsJson(head.content_type)) return absl::OkStatus();
  const bool is_of_browser = !head.origin.empty() || !head.fetch_site.empty();
  const bool is_of_curl =
      head.content_type.empty() ||
      absl::EqualsIgnoreCase(head.content_type, "application/x-www-form-urlencoded");
  if (is_of_curl && !is_of_browser) return absl::OkStatus();
  return WithCode(
      absl::InvalidArgumentError(absl::StrCat(
          "the header Content-Type is ", Quoted(head.content_type), ", allowed: application/json")),
      "unsupported_media_type", 415);
}

bool SiteRules::IsCorsOrigin(absl::string_view origin) const {
  return HasIgnoringCase(options_.cors_origins, kAny) ||
         HasIgnoringCase(options_.cors_origins, origin);
}

bool SiteRules::IsPreflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && !head.origin.empty() && !head.requested_method.empty();
}

HttpResponse SiteRules::PreflightAnswer(const HttpRequest& head, const std::string& methods) const {
  HttpResponse answer{.status = 204, .content_type = ""};
  answer.headers = {{"Access-Control-Allow-Methods", methods}, {"Access-Control-Max-Age", "600"}};
  // "*" would not cover Authorization, and OpenAI's client in browsers sends headers of its own.
  if (!head.requested_headers.empty()) {
    answer.headers.emplace_back("Access-Control-Allow-Headers", head.requested_headers);
  }
  return answer;
}

// Credentials such as cookies are never used, so "*" is as good as the origin itself.
std::vector<std::pair<std::string, std::string>> SiteRules::Headers(const HttpRequest& head) const {
  std::vector<std::pair<std::string, std::string>> headers;
  if (options_.cors_origins.empty()) return headers;
  const bool is_any = HasIgnoringCase(options_.cors_origins, kAny);
  if (!is_any) headers.emplace_back("Vary", "Origin");
  if (head.origin.empty() || !IsCorsOrigin(head.origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", is_any ? kAny : head.origin);
  headers.emplace_back("Access-Control-Expose-Headers",
                       absl::StrCat("Retry-After, ", kToolFormatHeader, ", ", kCacheHeader));
  return headers;
}

}  // namespace tandem
