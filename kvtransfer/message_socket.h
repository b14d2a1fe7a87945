#ifndef TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
#define TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_

#include <sys/socket.h>

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
// a name; resolving it may take long. The port must be from 0 to 65535. Otherwise returns
// INVALID_ARGUMENT that names `kv_transfer`.
absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names);

std::string HostOf(const Address& address);  // as digits
int PortOf(const Address& address);
std::string ToString(const Address& address);  // "127.0.0.1:80", "[::1]:80"

bool IsLoopback(const Address& address);
bool IsAnyAddress(const Address& address);  // 0.0.0.0, ::

// A TCP connection for messages, each preceded by its size in 4 bytes, little-endian. Never blocks.
// Thread-compatible.
class MessageSocket {
 public:
  MessageSocket() = default;
  explicit MessageSocket(int file);  // takes ownership of the descriptor
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Starts to connect.
  absl::Status Connect(const Address& address);

  int file() const { return file_; }
  bool has_unsent() const { return !unsent_.empty(); }

  // Sends as much as it can, and keeps the rest for Flush. Returns UNAVAILABLE if the connection
  // has failed or the peer does not read.
  absl::Status Send(const std::string& message);
  absl::Status Flush();
  // Appends the messages that have arrived to `messages`. Returns UNAVAILABLE if the connection has
  // ended, and INVALID_ARGUMENT for a message that is too long.
  absl::Status Receive(std::vector<std::string>* messages);

 private:
  int file_ = -1;
  bool is_connecting_ = false;
  std::string unsent_;
  std::string received_;  // an incomplete message
};

// Returns a non-blocking socket that listens at the address, or UNAVAILABLE.
absl::StatusOr<int> ListenAt(const Address& address);
// Returns the address that a socket is bound to.
Address LocalAddress(int file);
// Accepts a pending connection. Returns its descriptor and the address of the peer, or -1.
int Accept(int listener, Address* from);

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
