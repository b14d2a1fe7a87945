// An HTTP client over libcurl, which knows TLS and proxies (http_proxy and the like, not for this
// machine). Certificates to trust: $SSL_CERT_FILE and $SSL_CERT_DIR, else the system's.
#ifndef TANDEM_BASE_HTTP_HTTP_TRANSFER_H_
#define TANDEM_BASE_HTTP_HTTP_TRANSFER_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem {

struct HttpAnswer {
  int status = 0;
  std::string reason{};                          // of the status; may be empty
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // unless on_body took it
  std::string url{};                             // after redirects

  // The value of a header; empty without it.
  std::string Header(const std::string& name) const;
  // The time in Retry-After; zero unless it is a number of seconds.
  absl::Duration retry_after() const;
  // "429 Too Many Requests: slow down": the status, and the message in the body of an error: its
  // member "error", "message" or "detail", or its beginning.
  std::string ErrorText() const;
};

struct OutgoingRequest {
  std::string method = "GET";
  std::string url{};
  std::string body{};
  std::vector<std::string> headers{};  // "Name: value"
  // Goes on to the place that the server names. "Authorization" is left out at another host or
  // port, and https never leads to http.
  bool follows_redirects = false;
  absl::Duration time_limit = absl::InfiniteDuration();     // for the whole answer
  absl::Duration silence_limit = absl::InfiniteDuration();  // without any byte
  // Takes the pieces of the body of a status below 300; false ends the transfer.
  std::function<bool(const HttpAnswer& head, absl::string_view bytes)> on_body{};
  // Asked several times a second; true ends the transfer.
  std::function<bool()> is_cancelled{};
};

// Sends requests one after another, over one connection as long as the server keeps it open.
// Thread-compatible.
class HttpTransfer {
 public:
  HttpTransfer();
  ~HttpTransfer();
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  // Returns an answer of any status. Errors begin with the URL: UNAVAILABLE without a complete
  // answer, CANCELLED if one of the functions ended the transfer, RESOURCE_EXHAUSTED for a body of
  // more than 256 MiB that on_body did not take.
  absl::StatusOr<HttpAnswer> Run(const OutgoingRequest& request);

 private:
  void* const handle_;  // libcurl's
};

}  // namespace tandem

#endif  // TANDEM_BASE_HTTP_HTTP_TRANSFER_H_
