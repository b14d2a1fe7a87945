#ifndef TANDEM_SERVER_HTTP_REQUEST_TARGET_H_
#define TANDEM_SERVER_HTTP_REQUEST_TARGET_H_

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// A parsed request target: "/v1/models/a%2Fb?x=y", or the absolute form "http://host/health", which
// clients send to proxies.
struct RequestTarget {
  std::optional<std::string> host;  // of the absolute form, with its port
  // Decoded, without the query, and without a final slash except for "/" itself. Empty if the
  // percent-encoding is invalid.
  std::string path;
};
RequestTarget ParseTarget(std::string_view target);

// Returns the decoded value of the parameter `name` in the query of `target`, "" without it.
// Nothing if its percent-encoding is invalid.
std::optional<std::string> QueryValue(std::string_view target, std::string_view name);

}  // namespace tandem

#endif  // TANDEM_SERVER_HTTP_REQUEST_TARGET_H_
