#ifndef TANDEM_BASE_NET_HOST_AND_PORT_H_
#define TANDEM_BASE_NET_HOST_AND_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct HostAndPort {
  std::string host;
  int port = 0;
};
// Parses "HOST:PORT" or "[IPV6]:PORT". Returns INVALID_ARGUMENT that names `field` for other text.
absl::StatusOr<HostAndPort> ParseHostAndPort(absl::string_view text, absl::string_view field);
// INVALID_ARGUMENT that names `field` unless Networks::Parse reads the text (base/net/address.h).
absl::Status CheckNetworks(absl::string_view text, absl::string_view field);

}  // namespace tandem

#endif  // TANDEM_BASE_NET_HOST_AND_PORT_H_
