#include "kvtransfer/message_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kvtransfer/wire_messages.h"

namespace tandem {
namespace {

constexpr size_t kSizeBytes = 4;
constexpr size_t kMaxUnsentBytes = size_t{4} << 20;

absl::Status SocketError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

void SetOption(int file, int level, int option) {
  const int on = 1;
  setsockopt(file, level, option, &on, sizeof(on));
}

}  // namespace

MessageSocket::MessageSocket(int file) : file_(file) {
  SetOption(file_, IPPROTO_TCP, TCP_NODELAY);
  SetOption(file_, SOL_SOCKET, SO_KEEPALIVE);
}

MessageSocket::~MessageSocket() {
  if (file_ >= 0) close(file_);
}

absl::Status MessageSocket::Connect(const Address& address) {
  file_ = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file_ < 0) return SocketError("cannot create a socket", errno);
  SetOption(file_, IPPROTO_TCP, TCP_NODELAY);
  SetOption(file_, SOL_SOCKET, SO_KEEPALIVE);
  is_connecting_ = true;
  if (connect(file_, address.get(), address.size) == 0 || errno == EINPROGRESS) {
    return absl::OkStatus();
  }
  return SocketError("it cannot be reached", errno);
}

absl::Status MessageSocket::Send(const std::string& message) {
  if (unsent_.size() > kMaxUnsentBytes) return absl::UnavailableError("it does not read messages");
  for (size_t i = 0; i < kSizeBytes; ++i) {
    unsent_ += static_cast<char>(message.size() >> (8 * i) & 255);
  }
  unsent_ += message;
  return Flush();
}

absl::Status MessageSocket::Flush() {
  size_t num_sent = 0;
  while (num_sent < unsent_.size()) {
    const ssize_t sent =
        send(file_, unsent_.data() + num_sent, unsent_.size() - num_sent, MSG_NOSIGNAL);
    if (sent >= 0) {
      is_connecting_ = false;
      num_sent += sent;
      continue;
    }
    if (errno == EINTR) continue;
    // While the connection is still being made, send fails with ENOTCONN.
    const bool must_wait =
        errno == EAGAIN || (is_connecting_ && (errno == ENOTCONN || errno == EINPROGRESS));
    if (!must_wait) return SocketError("it cannot be reached", errno);
    break;
  }
  unsent_.erase(0, num_sent);
  return absl::OkStatus();
}

absl::Status MessageSocket::Receive(std::vector<std::string>* messages) {
  std::array<char, 65536> bytes;
  const ssize_t size = recv(file_, bytes.data(), bytes.size(), 0);
  if (size == 0) return absl::UnavailableError("it has closed the connection");
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    return SocketError("the connection is lost", errno);
  }
  received_.append(bytes.data(), size);
  size_t at = 0;
  while (received_.size() - at >= kSizeBytes) {
    size_t message_bytes = 0;
    for (size_t i = 0; i < kSizeBytes; ++i) {
      message_bytes |= size_t{static_cast<uint8_t>(received_[at + i])} << (8 * i);
    }
    if (message_bytes > kMaxMessageBytes) {
      return absl::InvalidArgumentError("it sent a malformed message");
    }
    if (received_.size() - at - kSizeBytes < message_bytes) break;
    messages->push_back(received_.substr(at + kSizeBytes, message_bytes));
    at += kSizeBytes + message_bytes;
  }
  received_.erase(0, at);
  return absl::OkStatus();
}

absl::StatusOr<int> ListenAt(const Address& address) {
  const int file = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (file < 0) return SocketError("kv_transfer: cannot create a socket", errno);
  // Lets a restarted server use the same port again.
  SetOption(file, SOL_SOCKET, SO_REUSEADDR);
  if (bind(file, address.get(), address.size) != 0 || listen(file, SOMAXCONN) != 0) {
    const int error = errno;
    close(file);
    return SocketError(absl::StrCat("kv_transfer: cannot listen on ", ToString(address)), error);
  }
  return file;
}

Address LocalAddress(int file) {
  Address address;
  address.size = sizeof(address.storage);
  getsockname(file, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

int Accept(int listener, Address* from) {
  from->size = sizeof(from->storage);
  return accept4(listener, reinterpret_cast<sockaddr*>(&from->storage), &from->size,
                 SOCK_NONBLOCK | SOCK_CLOEXEC);
}

}  // namespace tandem
