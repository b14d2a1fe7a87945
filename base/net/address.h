#ifndef TANDEM_BASE_NET_ADDRESS_H_
#define TANDEM_BASE_NET_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/net/asio.h"

namespace tandem {

// An IP address and a port.
using Address = net::ip::tcp::endpoint;

enum class Names { kResolved, kRefused };

// Returns the address of `host` and `port`. The host must be an address or, if names are resolved,
// a name; resolving it may take long. The port must be from 0 to 65535. An IPv4 address that is
// written as an IPv6 address is returned as IPv4. Otherwise returns INVALID_ARGUMENT that names
// `field`.
absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names,
                                     absl::string_view field);

std::string ToString(const Address& address);  // "127.0.0.1:80", "[::1]:80"

// Returns the part of a client's address that it cannot choose: of IPv6 the first 64 bits. Returns
// other texts unchanged.
std::string ClientNetwork(const std::string& address);

// Addresses that a worker may connect to.
class Networks {
 public:
  // Parses a list such as "10.0.0.0/8,192.168.1.7:7777,[fd00::]/8,[fd00::1]:7777": networks, each
  // with an optional port. INVALID_ARGUMENT that names `field` and the wrong item.
  static absl::StatusOr<Networks> Parse(absl::string_view text, absl::string_view field);
  // Returns the networks of the interface that has this address of the machine; the address alone
  // if there is none. Loopback networks only for a loopback address.
  static Networks Around(const Address& own);

  // Whether a connection is allowed. Multicast, broadcast, unspecified and link-local addresses
  // never are.
  bool Allow(const Address& address) const;
  std::string ToString() const;  // as Parse reads it

 private:
  struct Network {
    net::ip::address address;
    int prefix = 0;  // bits
    int port = 0;    // 0: any
  };
  std::vector<Network> networks_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_ADDRESS_H_
