#ifndef TANDEM_SERVER_API_SITE_RULES_H_
#define TANDEM_SERVER_API_SITE_RULES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/http_message.h"

namespace tandem {

struct SiteOptions {
  bool is_loopback = false;  // only this machine can reach the server
  bool has_key = false;
  std::string own_host{};                    // the address to listen at, as configured
  std::vector<std::string> allowed_hosts{};  // names in addition to the loopback names; "*": any
  std::vector<std::string>
      cors_origins{};  // origins whose pages may send requests and read answers; "*": any

  // Returns INVALID_ARGUMENT, naming the command-line option.
  absl::Status Validate() const;
};

// Decides which hosts and page origins a request may have. A browser lets every web page send
// requests to any address, including this machine's: it hides the answer from the page, but the
// work is done. And the owner of a domain can point it at this machine after the page has loaded
// (DNS rebinding), so that page and server seem to have the same origin. A key prevents both.
// Without one:
//
// - a server that only this machine can reach accepts only loopback names and `allowed_hosts`;
// - requests that change something or cost work are refused from pages of other origins than the
// server's own and `cors_origins`.
//
// Thread-safe.
class SiteRules {
 public:
  explicit SiteRules(SiteOptions options) : options_(std::move(options)) {}

  // Checks the host and origin. Returns INVALID_ARGUMENT with HTTP status 403.
  absl::Status Check(const HttpRequest& head) const;
  // Checks that a body of this type is read as JSON. Returns INVALID_ARGUMENT with HTTP status 415.
  static absl::Status CheckContentType(const HttpRequest& head);

  // Returns whether this is a browser's CORS preflight request.
  static bool IsPreflight(const HttpRequest& head);
  // Returns the answer to a preflight. `methods` are those of the path.
  HttpResponse PreflightAnswer(const HttpRequest& head, const std::string& methods) const;
  // Returns the headers that tell a browser whether the page may read the answer.
  std::vector<std::pair<std::string, std::string>> Headers(const HttpRequest& head) const;

 private:
  absl::Status CheckHost(absl::string_view host) const;
  absl::Status CheckOrigin(const HttpRequest& head) const;
  bool IsCorsOrigin(absl::string_view origin) const;

  const SiteOptions options_;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SITE_RULES_H_
