#include "proof/remote/http_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/http/http_transfer.h"
#include "base/instant.h"
#include "base/json/json_text.h"
#include "base/net/host_and_port.h"
#include "base/status_macros.h"

namespace tandem {

absl::StatusOr<HttpUrl> HttpUrl::Parse(const std::string& text, absl::string_view field) {
  HttpUrl url;
  absl::string_view rest = text;
  url.is_secure = absl::ConsumePrefix(&rest, "https://");
  if (!url.is_secure && !absl::ConsumePrefix(&rest, "http://")) {
    return NotAllowed(field, Quoted(text), "a URL that begins with http:// or https://");
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = std::string(absl::StripSuffix(rest.substr(slash), "/"));
  const absl::string_view place = rest.substr(0, slash);
  const size_t colon = place.find(':', absl::StartsWith(place, "[") ? place.find(']') : 0);
  const bool has_port = colon != absl::string_view::npos;
  ASSIGN_OR_RETURN(const HostAndPort parsed,
                   ParseHostAndPort(has_port ? std::string(place)
                                             : absl::StrCat(place, url.is_secure ? ":443" : ":80"),
                                    field));
  url.host = parsed.host;
  url.port = parsed.port;
  return url;
}

std::string HttpUrl::Authority() const {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

HttpClient::HttpClient(Options options) : options_(std::move(options)) {}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpTransfer> HttpClient::TakeIdle() {
  const absl::MutexLock lock(&mutex_);
  if (idle_.empty()) return std::make_unique<HttpTransfer>();
  std::unique_ptr<HttpTransfer> transfer = std::move(idle_.back());
  idle_.pop_back();
  return transfer;
}

absl::StatusOr<std::string> HttpClient::Send(const std::string& method, const std::string& target,
                                             const std::string& body) {
  OutgoingRequest request{.method = method,
                          .url = absl::StrCat(options_.url.is_secure ? "https://" : "http://",
                                              options_.url.Authority(), target),
                          .body = body,
                          .headers = {"Accept: application/json"},
                          .time_limit = options_.time_limit};
  if (!body.empty()) request.headers.push_back("Content-Type: application/json");
  if (!options_.api_key.empty()) {
    request.headers.push_back(absl::StrCat("Authorization: Bearer ", options_.api_key));
  }
  const Instant start = Instant::Now();
  for (int attempt = 1;; ++attempt) {
    std::unique_ptr<HttpTransfer> transfer = TakeIdle();
    ASSIGN_OR_RETURN(HttpAnswer answer, transfer->Run(request));
    {
      const absl::MutexLock lock(&mutex_);
      idle_.push_back(std::move(transfer));
    }
    if (answer.status < 300) return std::move(answer.body);
    const bool is_busy = answer.status == 429 || answer.status == 503;
    if (is_busy && Instant::Now() - start < options_.patience) {
      absl::SleepFor(answer.headers.contains("retry-after")
                         ? std::min(answer.retry_after(), absl::Minutes(1))
                         : absl::Milliseconds(250 << std::min(attempt, 5)));
      continue;
    }
    const std::string message = absl::StrCat(request.url, ": ", answer.ErrorText());
    if (answer.status == 401 || answer.status == 403) return absl::PermissionDeniedError(message);
    if (is_busy) return absl::UnavailableError(message);
    if (answer.status >= 500) return absl::InternalError(message);
    return absl::InvalidArgumentError(message);
  }
}

}  // namespace tandem
