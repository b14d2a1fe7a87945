// A client of one HTTP server.
#ifndef TANDEM_PROOF_REMOTE_HTTP_CLIENT_H_
#define TANDEM_PROOF_REMOTE_HTTP_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/http/http_transfer.h"

namespace tandem {

struct HttpUrl {
  bool is_secure = false;  // https
  std::string host{};
  int port = 0;
  std::string path{};  // without a slash at its end: "" or "/v1"

  // Parses "http://host[:port][/path]" or https. INVALID_ARGUMENT that names `field`.
  static absl::StatusOr<HttpUrl> Parse(const std::string& text, absl::string_view field);
  std::string Authority() const;  // "host:port"
};

// Sends requests and returns the answers' bodies. Thread-safe.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Sends `body`, which is JSON or empty. An error names the URL. It is UNAVAILABLE without an
  // answer. For a status from 300 on, it has the status and the server's message; its code is
  // PERMISSION_DENIED for 401 and 403, UNAVAILABLE for 429 and 503, INTERNAL for others from 500
  // on, else INVALID_ARGUMENT.
  virtual absl::StatusOr<std::string> Send(const std::string& method, const std::string& target,
                                           const std::string& body) = 0;
};

// Keeps connections open, as many as there are requests at the same time.
class HttpClient : public HttpExchange {
 public:
  struct Options {
    HttpUrl url{};
    std::string api_key{};                         // sent as a bearer token unless empty
    absl::Duration time_limit = absl::Minutes(5);  // of an answer
    absl::Duration patience = absl::Minutes(5);    // while the server answers 429 or 503
  };
  explicit HttpClient(Options options);
  ~HttpClient() override;

  absl::StatusOr<std::string> Send(const std::string& method, const std::string& target,
                                   const std::string& body) override;

 private:
  std::unique_ptr<HttpTransfer> TakeIdle();

  const Options options_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<HttpTransfer>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_HTTP_CLIENT_H_
