#ifndef TANDEM_KVTRANSFER_ADDRESS_H_
#define TANDEM_KVTRANSFER_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// An address of the Internet protocol and a port.
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
// "HOST:PORT" or "[IPV6]:PORT". INVALID_ARGUMENT naming `field` for others.
absl::StatusOr<HostAndPort> ParseHostAndPort(absl::string_view text, absl::string_view field);

// INVALID_ARGUMENT, naming `kv_transfer`, unless the host is an address, or a name that has one
// where names are resolved, which may take long; and the port from 0 to 65535.
absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names);

std::string HostOf(const Address& address);  // as digits
int PortOf(const Address& address);
std::string ToString(const Address& address);  // "127.0.0.1:80", "[::1]:80"

bool IsLoopback(const Address& address);
bool IsAnyAddress(const Address& address);  // 0.0.0.0, ::

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_ADDRESS_H_
