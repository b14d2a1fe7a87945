#include "base/http/http_transfer.h"

#include <curl/curl.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/guard.h"
#include "base/json/json_text.h"

namespace tandem {
namespace {

constexpr size_t kLargestBody = 256 << 20;
constexpr size_t kLongestMessage = 300;
constexpr absl::Duration kConnectLimit = absl::Seconds(20);

// A request on its way.
struct Exchange {
  const OutgoingRequest& request;
  HttpAnswer answer{};
  bool is_stopped = false;
  bool is_too_large = false;
};

// Returns whether `take` has returned true, and has thrown nothing: exceptions must not pass
// through libcurl.
template <typename Take>
bool Takes(const Take& take) {
  bool is_taken = false;
  return Attempt("http", [&] { is_taken = take(); }) && is_taken;
}

size_t OnHeader(const char* bytes, size_t /*one*/, size_t size, void* data) {
  HttpAnswer& answer = static_cast<Exchange*>(data)->answer;
  const bool is_taken = Takes([&] {
    const absl::string_view line = absl::StripAsciiWhitespace(absl::string_view(bytes, size));
    if (absl::StartsWith(line, "HTTP/")) {  // of one more answer, after a redirect
      const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
      answer = {.reason = words.size() > 2 ? words[2] : ""};
      return words.size() > 1 && absl::SimpleAtoi(words[1], &answer.status);
    }
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    answer.headers[absl::AsciiStrToLower(field.first)] =
        std::string(absl::StripAsciiWhitespace(field.second));
    return true;
  });
  return is_taken ? size : 0;
}

size_t OnBody(const char* bytes, size_t /*one*/, size_t size, void* data) {
  Exchange& exchange = *static_cast<Exchange*>(data);
  HttpAnswer& answer = exchange.answer;
  const bool is_taken = Takes([&] {
    if (exchange.request.on_body && answer.status < 300) {
      return exchange.request.on_body(answer, {bytes, size});
    }
    exchange.is_too_large = answer.body.size() + size > kLargestBody;
    if (!exchange.is_too_large) answer.body.append(bytes, size);
    return !exchange.is_too_large;
  });
  exchange.is_stopped |= !is_taken;
  return is_taken ? size : 0;
}

int OnProgress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Exchange& exchange = *static_cast<Exchange*>(data);
  exchange.is_stopped |= Takes(exchange.request.is_cancelled);
  return exchange.is_stopped ? 1 : 0;
}

bool IsThisMachine(absl::string_view url) {
  for (const absl::string_view host : {"127.0.0.1", "localhost", "[::1]"}) {
    for (const absl::string_view scheme : {"http://", "https://"}) {
      if (absl::StartsWith(url, absl::StrCat(scheme, host))) return true;
    }
  }
  return false;
}

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

std::string HttpAnswer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

absl::Duration HttpAnswer::retry_after() const {
  int seconds = 0;
  const bool is_told = absl::SimpleAtoi(Header("retry-after"), &seconds) && seconds >= 0;
  return is_told ? absl::Seconds(seconds) : absl::ZeroDuration();
}

std::string HttpAnswer::ErrorText() const {
  return absl::StrCat(status, reason.empty() ? "" : " ", reason, ": ", MessageIn(body));
}

HttpTransfer::HttpTransfer()
    : handle_([] {
        static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
        return ready == CURLE_OK ? curl_easy_init() : nullptr;
      }()) {
  TANDEM_CHECK(handle_ != nullptr);
}

HttpTransfer::~HttpTransfer() { curl_easy_cleanup(handle_); }

absl::StatusOr<HttpAnswer> HttpTransfer::Run(const OutgoingRequest& request) {
  Exchange exchange{request};
  std::array<char, CURL_ERROR_SIZE> message = {};
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, curl_slist_free_all);
  const auto add = [&](const std::string& header) {
    curl_slist* const longer = curl_slist_append(headers.get(), header.c_str());
    TANDEM_CHECK(longer != nullptr);
    (void)headers.release();
    headers.reset(longer);
  };
  add("Expect:");  // otherwise a large body waits for an answer that few servers send
  absl::c_for_each(request.headers, add);

  const auto set = [this](CURLoption option, auto value) {
    (void)curl_easy_setopt(handle_, option, value);
  };
  curl_easy_reset(handle_);  // keeps the connection
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  const bool is_secure = absl::StartsWith(request.url, "https:");
  set(CURLOPT_PROTOCOLS_STR, is_secure ? "https" : "http");
  set(CURLOPT_REDIR_PROTOCOLS_STR, is_secure ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, request.follows_redirects ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, 10L);
  if (!request.body.empty() || request.method == "POST") {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
  }
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_HEADERFUNCTION, OnHeader);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, OnBody);
  set(CURLOPT_WRITEDATA, &exchange);
  if (request.is_cancelled) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, OnProgress);
    set(CURLOPT_XFERINFODATA, &exchange);
  }
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(kConnectLimit)));
  if (request.time_limit < absl::InfiniteDuration()) {
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(request.time_limit)));
  }
  if (request.silence_limit < absl::InfiniteDuration()) {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(absl::ToInt64Seconds(request.silence_limit)));
  }
  if (IsThisMachine(request.url)) set(CURLOPT_PROXY, "");
  for (const auto& [variable, option] :
       {std::pair("SSL_CERT_FILE", CURLOPT_CAINFO), std::pair("SSL_CERT_DIR", CURLOPT_CAPATH)}) {
    const std::string path = EnvironmentVariable(variable);
    if (!path.empty()) set(option, path.c_str());
  }

  const CURLcode code = curl_easy_perform(handle_);
  const auto failed = [&](absl::StatusCode kind, absl::string_view why) {
    return absl::Status(kind, absl::StrCat(request.url, ": ", why));
  };
  if (exchange.is_too_large) {
    return failed(absl::StatusCode::kResourceExhausted, "the answer is larger than 256 MiB");
  }
  if (exchange.is_stopped) return failed(absl::StatusCode::kCancelled, "was stopped");
  if (code == CURLE_OPERATION_TIMEDOUT && request.time_limit < absl::InfiniteDuration()) {
    return failed(absl::StatusCode::kUnavailable,
                  absl::StrCat("no answer within ", absl::FormatDuration(request.time_limit)));
  }
  if (code != CURLE_OK) {
    long reason = 0;  // an errno
    (void)curl_easy_getinfo(handle_, CURLINFO_OS_ERRNO, &reason);
    const bool is_refused = code == CURLE_COULDNT_CONNECT && reason != 0;
    std::string why = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
    if (is_refused) absl::StrAppend(&why, ": ", std::strerror(static_cast<int>(reason)));
    return failed(absl::StatusCode::kUnavailable, why);
  }
  const char* url = nullptr;
  if (curl_easy_getinfo(handle_, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url != nullptr) {
    exchange.answer.url = url;
  }
  return std::move(exchange.answer);
}

}  // namespace tandem
