#include "kvtransfer/message_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvtransfer/wire_messages.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

const sockaddr_in& V4(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& V6(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}
bool IsV4(const Address& address) { return address.storage.ss_family == AF_INET; }

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

absl::StatusOr<HostAndPort> ParseHostAndPort(absl::string_view text, absl::string_view field) {
  const size_t colon = text.rfind(':');
  HostAndPort parsed;
  const bool has_port = colon != absl::string_view::npos && colon > 0 &&
                        absl::SimpleAtoi(text.substr(colon + 1), &parsed.port) &&
                        0 <= parsed.port && parsed.port <= 65535;
  if (!has_port) {
    return FieldError(
        field, absl::StrCat("must be HOST:PORT with a port from 0 to 65535, got \"", text, "\""));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  parsed.host = std::string(host);
  return parsed;
}

absl::StatusOr<Address> ParseAddress(const std::string& host, int port, Names names) {
  RETURN_IF_ERROR(
      WithField(CheckWithin("kv_transfer", port, {.low = 0, .high = 65535}), "kv_transfer"));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (names == Names::kRefused ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0 || host.empty()) {
    return FieldError("kv_transfer", absl::StrCat("must be an address of this machine's network, "
                                                  "for instance 10.0.0.7, got '",
                                                  host, "' (", gai_strerror(error), ")"));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

std::string HostOf(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* const bytes = IsV4(address) ? static_cast<const void*>(&V4(address).sin_addr)
                                          : static_cast<const void*>(&V6(address).sin6_addr);
  inet_ntop(address.storage.ss_family, bytes, text, sizeof(text));
  return text;
}

int PortOf(const Address& address) {
  return ntohs(IsV4(address) ? V4(address).sin_port : V6(address).sin6_port);
}

std::string ToString(const Address& address) {
  const std::string host = HostOf(address);
  return IsV4(address) ? absl::StrCat(host, ":", PortOf(address))
                       : absl::StrCat("[", host, "]:", PortOf(address));
}

bool IsLoopback(const Address& address) {
  if (IsV4(address)) return ntohl(V4(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&V6(address).sin6_addr);
}

bool IsAnyAddress(const Address& address) {
  if (IsV4(address)) return V4(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&V6(address).sin6_addr);
}

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
