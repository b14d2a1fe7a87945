#ifndef TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
#define TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvtransfer/address.h"

namespace tandem {

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
