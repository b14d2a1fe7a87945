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
  bool is_loopback = false;  // only this machine reaches the server
  bool has_key = false;
  std::string own_host{};                    // as it was told where to listen
  std::vector<std::string> allowed_hosts{};  // names beside those of loopback; "*": any
  std::vector<std::string> cors_origins{};   // whose pages may ask and read; "*": any

  // INVALID_ARGUMENT, naming the option as the command line does.
  absl::Status Validate() const;
};

// Whose pages may ask a server, and under which names. A browser lets every page of the web send
// requests to every address, that of this machine included: it keeps the answer from the page, but
// the work is done. And whoever owns a name can let it mean this machine once the page is loaded
// (DNS rebinding), so that page and server seem to be one. A key ends both; without one:
//
// - a server of this machine alone answers to names of loopback and to `allowed_hosts`;
// - what changes something or costs work is not done for pages of other origins than the server's
//   own and `cors_origins`.
//
// Thread-safe.
class SiteRules {
 public:
  explicit SiteRules(SiteOptions options) : options_(std::move(options)) {}

  // Whether this page may ask, and under this name. INVALID_ARGUMENT as 403.
  absl::Status Check(const HttpRequest& head) const;
  // Whether a body of this type is read as JSON. INVALID_ARGUMENT as 415.
  static absl::Status CheckContentType(const HttpRequest& head);

  // Whether it is a browser's question whether a page may ask.
  static bool IsPreflight(const HttpRequest& head);
  // The answer to that; `methods` are those of the path.
  HttpResponse PreflightAnswer(const HttpRequest& head, const std::string& methods) const;
  // What tells a browser, with every answer, whether the page may read it.
  std::vector<std::pair<std::string, std::string>> Headers(const HttpRequest& head) const;

 private:
  absl::Status CheckHost(absl::string_view host) const;
  absl::Status CheckOrigin(const HttpRequest& head) const;
  bool IsCorsOrigin(absl::string_view origin) const;

  const SiteOptions options_;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SITE_RULES_H_
