#ifndef TANDEM_SERVER_HTTP_REQUEST_TARGET_H_
#define TANDEM_SERVER_HTTP_REQUEST_TARGET_H_

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// What the target of a request says: "/v1/models/a%2Fb?x=y", or "http://host/health", as clients
// ask proxies.
struct RequestTarget {
  std::optional<std::string> host;  // of the second form, with its port
  // Without the query, decoded, and without a slash at its end, but for "/" itself. Empty if its
  // percent-encoding is none.
  std::string path;
};
RequestTarget ParseTarget(std::string_view target);

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_REQUEST_TARGET_H_
