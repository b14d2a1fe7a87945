#include "proof/remote/http_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/instant.h"
#include "base/json/json_text.h"
#include "base/net/beast.h"
#include "base/net/host_and_port.h"
#include "base/status_macros.h"
#include "boost/asio/ssl.hpp"
#include "boost/beast/ssl.hpp"

namespace tandem {
namespace {

using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;
constexpr uint64_t kLargestAnswer = 256 << 20;
constexpr size_t kLongestMessage = 300;

// Returns the message in the body of an error: the member of that name of "error" or of the body,
// or the body's beginning.
std::string MessageIn(const std::string& body) {
  const absl::StatusOr<SortedJson> json = ParseJson(body, "body");
  if (json.ok() && json->is_object()) {
    const SortedJson inner = json->value("error", *json);
    if (inner.is_string()) return inner.get<std::string>();
    for (const char* name : {"message", "detail"}) {
      if (inner.is_object() && inner.contains(name)) {
        return inner[name].is_string() ? inner[name].get<std::string>() : Shown(inner[name]);
      }
    }
  }
  return body.substr(0, kLongestMessage);
}

}  // namespace

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

// One connection, and the loop that runs its operations. Thread-compatible.
class HttpClient::Connection {
 public:
  Connection(const Options& options, net::ssl::context* tls)
      : options_(options), stream_(context_, *tls) {}

  beast::error_code Open() {
    const HttpUrl& url = options_.url;
    beast::error_code error;
    net::ip::tcp::resolver resolver(context_);
    const auto addresses = resolver.resolve(url.host, absl::StrCat(url.port), error);
    if (error) return error;
    tcp().expires_after(absl::ToChronoNanoseconds(options_.time_limit));
    error = Await([&](auto done) { tcp().async_connect(addresses, std::move(done)); });
    if (error) return error;
    tcp().socket().set_option(net::ip::tcp::no_delay(true), error);
    if (!url.is_secure) return {};
    stream_.set_verify_mode(net::ssl::verify_peer, error);
    stream_.set_verify_callback(net::ssl::host_name_verification(url.host), error);
    SSL_set_tlsext_host_name(stream_.native_handle(), url.host.c_str());
    return Await([&](auto done) {
      stream_.async_handshake(net::ssl::stream_base::client, std::move(done));
    });
  }

  beast::error_code Exchange(const Request& request, Response* response) {
    return options_.url.is_secure ? ExchangeOn(&stream_, request, response)
                                  : ExchangeOn(&tcp(), request, response);
  }

 private:
  beast::tcp_stream& tcp() { return stream_.next_layer(); }

  // Runs an operation to its end, which is at its time limit at the latest.
  template <typename Start>
  beast::error_code Await(const Start& start) {
    beast::error_code error;
    start([&error](beast::error_code outcome, auto&&...) { error = outcome; });
    context_.restart();
    context_.run();
    return error;
  }

  template <typename Stream>
  beast::error_code ExchangeOn(Stream* stream, const Request& request, Response* response) {
    tcp().expires_after(absl::ToChronoNanoseconds(options_.time_limit));
    beast::error_code error =
        Await([&](auto done) { http::async_write(*stream, request, std::move(done)); });
    if (error) return error;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kLargestAnswer);
    error = Await([&](auto done) { http::async_read(*stream, buffer_, parser, std::move(done)); });
    *response = parser.release();
    return error;
  }

  const Options& options_;
  net::io_context context_;
  beast::ssl_stream<beast::tcp_stream> stream_;  // only its TCP stream is used for http
  beast::flat_buffer buffer_;
};

struct HttpClient::Shared {
  net::ssl::context tls{net::ssl::context::tls_client};
  absl::Mutex mutex;
  std::vector<std::unique_ptr<Connection>> idle ABSL_GUARDED_BY(mutex);
};

HttpClient::HttpClient(Options options)
    : options_(std::move(options)), shared_(std::make_unique<Shared>()) {
  beast::error_code ignored;  // without certificates to trust, each handshake fails by name
  if (options_.url.is_secure) shared_->tls.set_default_verify_paths(ignored);
}

HttpClient::~HttpClient() = default;

absl::StatusOr<std::string> HttpClient::Send(const std::string& method, const std::string& target,
                                             const std::string& body) {
  Request request(http::string_to_verb(method), target, 11, body);
  request.set(http::field::host, options_.url.Authority());
  request.set(http::field::accept, "application/json");
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  if (!options_.api_key.empty()) {
    request.set(http::field::authorization, absl::StrCat("Bearer ", options_.api_key));
  }
  request.prepare_payload();
  const std::string url = absl::StrCat(options_.url.is_secure ? "https://" : "http://",
                                       options_.url.Authority(), target);
  const Instant start = Instant::Now();
  for (int attempt = 1;; ++attempt) {
    std::unique_ptr<Connection> connection;
    {
      absl::MutexLock lock(&shared_->mutex);
      if (!shared_->idle.empty()) {
        connection = std::move(shared_->idle.back());
        shared_->idle.pop_back();
      }
    }
    // A server may have closed a kept connection, which the first failure shows.
    const bool is_kept = connection != nullptr;
    Response response;
    beast::error_code error;
    if (is_kept) error = connection->Exchange(request, &response);
    if (!is_kept || (error && error != beast::error::timeout)) {
      connection = std::make_unique<Connection>(options_, &shared_->tls);
      error = connection->Open();
      if (!error) error = connection->Exchange(request, &response);
    }
    if (error == beast::error::timeout) {
      return absl::UnavailableError(
          absl::StrCat(url, ": no answer within ", absl::FormatDuration(options_.time_limit)));
    }
    if (error) return absl::UnavailableError(absl::StrCat(url, ": ", error.message()));
    if (response.keep_alive()) {
      absl::MutexLock lock(&shared_->mutex);
      shared_->idle.push_back(std::move(connection));
    }
    const unsigned status = response.result_int();
    if (status < 300) return std::move(response.body());
    const bool is_busy = status == 429 || status == 503;
    if (is_busy && Instant::Now() - start < options_.patience) {
      const auto given = response[http::field::retry_after];
      int seconds = 0;
      const bool is_told = absl::SimpleAtoi({given.data(), given.size()}, &seconds);
      absl::SleepFor(is_told ? absl::Seconds(std::clamp(seconds, 0, 60))
                             : absl::Milliseconds(250 << std::min(attempt, 5)));
      continue;
    }
    const auto reason = response.reason();
    const std::string message = absl::StrCat(url, ": ", status, reason.empty() ? "" : " ",
                                             absl::string_view(reason.data(), reason.size()), ": ",
                                             MessageIn(response.body()));
    if (status == 401 || status == 403) return absl::PermissionDeniedError(message);
    if (is_busy) return absl::UnavailableError(message);
    if (status >= 500) return absl::InternalError(message);
    return absl::InvalidArgumentError(message);
  }
}

}  // namespace tandem
