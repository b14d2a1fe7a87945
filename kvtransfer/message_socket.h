#ifndef TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_
#define TANDEM_KVTRANSFER_MESSAGE_SOCKET_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/address.h"

namespace tandem {

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
