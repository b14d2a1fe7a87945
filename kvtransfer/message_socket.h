#ifndef TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
#define TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
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

// A TCP connection over which messages travel, each after its size as 4 bytes, the lowest first.
// It never waits. Thread-compatible.
class MessageSocket {
 public:
  MessageSocket() = default;
  explicit MessageSocket(int file);  // takes it over
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Begins to connect.
  absl::Status Connect(const Address& address);

  int file() const { return file_; }
  bool has_unsent() const { return !unsent_.empty(); }

  // Sends what it can, and keeps the rest for Flush. UNAVAILABLE if the connection has failed or
  // the peer reads nothing.
  absl::Status Send(const std::string& message);
  absl::Status Flush();
  // Adds the messages that have arrived. UNAVAILABLE if the connection has ended,
  // INVALID_ARGUMENT for a message that is too long.
  absl::Status Receive(std::vector<std::string>* messages);

 private:
  int file_ = -1;
  bool is_connecting_ = false;
  std::string unsent_;
  std::string received_;  // the beginning of a message
};

// A socket that listens and never waits. UNAVAILABLE if that is not possible.
absl::StatusOr<int> ListenAt(const Address& address);
// The address that the socket has.
Address LocalAddress(int file);
// A connection that waits to be taken, and from where it comes; -1 if there is none.
int Accept(int listener, Address* from);

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
