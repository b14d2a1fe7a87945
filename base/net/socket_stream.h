#ifndef TANDEM_BASE_NET_SOCKET_STREAM_H_
#define TANDEM_BASE_NET_SOCKET_STREAM_H_

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/net/asio.h"
#include "base/net/byte_stream.h"

namespace tandem {

// The bytes of a socket. Those of the first record's header are read before TLS begins.
class SocketStream final : public ByteStream {
 public:
  static constexpr size_t kRecordHeaderBytes = 5;  // of TLS
  explicit SocketStream(net::ip::tcp::socket* socket) : socket_(*socket) {}

  // Reads the first record's header. kSome: it is complete.
  Moved::State ReadHead() {
    while (num_head_ < head_.size()) {
      const Moved moved = ReadSocket(absl::MakeSpan(head_).subspan(num_head_));
      if (moved.state != Moved::kSome) return moved.state;
      num_head_ += moved.size;
    }
    return Moved::kSome;
  }
  absl::Span<const std::byte> head() const { return head_; }

  Moved Read(absl::Span<std::byte> into) override {
    if (num_taken_ == num_head_) return ReadSocket(into);
    const size_t size = std::min(into.size(), num_head_ - num_taken_);
    std::copy_n(head_.begin() + num_taken_, size, into.begin());
    num_taken_ += size;
    return {.state = Moved::kSome, .size = size};
  }
  Moved Write(absl::Span<const std::byte> bytes) override {
    return MovedBy(send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  absl::Status failure() const override { return failure_; }

 private:
  // After a read that got less than it could have, the next one waits without asking.
  Moved ReadSocket(absl::Span<std::byte> into) {
    if (std::exchange(is_drained_, false)) return {.state = Moved::kWaits};
    const Moved moved = MovedBy(recv(socket_.native_handle(), into.data(), into.size(), 0));
    is_drained_ = moved.state == Moved::kSome && moved.size < into.size();
    return moved;
  }
  Moved MovedBy(ssize_t size) {
    if (size > 0) return {.state = Moved::kSome, .size = static_cast<size_t>(size)};
    if (size == 0) return {.state = Moved::kEnded};
    if (errno == EAGAIN || errno == EINTR) return {.state = Moved::kWaits};
    failure_ =
        absl::UnavailableError(absl::StrCat("the connection is lost: ", std::strerror(errno)));
    return {.state = Moved::kFailed};
  }

  net::ip::tcp::socket& socket_;
  std::array<std::byte, kRecordHeaderBytes> head_ = {};
  size_t num_head_ = 0;
  size_t num_taken_ = 0;  // of these, by TLS
  bool is_drained_ = false;
  absl::Status failure_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_SOCKET_STREAM_H_
