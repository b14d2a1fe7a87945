#ifndef TANDEM_NET_ADDRESS_H_
#define TANDEM_NET_ADDRESS_H_

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// An IP address and a port.
struct Address {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

enum class Names { kResolved, kRefused };

struct HostAndPort {
  std::string host;
  int port = 0;
};
// Parses "HOST:PORT" or "[IPV6]:PORT". Returns INVALID_ARGUMENT that names `field` for other text.
absl::StatusOr<HostAndPort> ParseHostAndPort(absl::string_view text, absl::string_view field);

// Returns the address of `host` and `port`. The host must be an address or, if names are resolved,
// a name; resolving it may take long. The port must be from 0 to 65535. An IPv4 address that is
// written as an IPv6 address is returned as IPv4. Otherwise returns INVALID_ARGUMENT that names
// `field`.
absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names,
                                     absl::string_view field);

std::string HostOf(const Address& address);  // as digits
int PortOf(const Address& address);
std::string ToString(const Address& address);  // "127.0.0.1:80", "[::1]:80"

bool IsLoopback(const Address& address);
bool IsAnyAddress(const Address& address);  // 0.0.0.0, ::

// Addresses that a worker may connect to.
class Networks {
 public:
  // Parses a list such as "10.0.0.0/8,192.168.1.7:7777,[fd00::]/8,[fd00::1]:7777": networks, each
  // with an optional port. INVALID_ARGUMENT that names `field` and the wrong item.
  static absl::StatusOr<Networks> Parse(absl::string_view text, absl::string_view field);
  // Returns the networks of the interface that has this address of the machine; the address alone
  // if there is none. Loopback networks only for a loopback address.
  static Networks Around(const Address& own);

  // Whether a connection is allowed. Multicast, unspecified and link-local addresses never are.
  bool Allow(const Address& address) const;
  std::string ToString() const;  // as Parse reads it

 private:
  struct Network {
    std::array<uint8_t, 16> bytes;  // IPv4 as ::ffff:a.b.c.d
    int prefix = 0;                 // bits, of 128
    int port = 0;                   // 0: any
  };
  std::vector<Network> networks_;
};

}  // namespace tandem

#endif  // TANDEM_NET_ADDRESS_H_
