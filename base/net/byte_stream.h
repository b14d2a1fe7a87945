#ifndef TANDEM_BASE_NET_BYTE_STREAM_H_
#define TANDEM_BASE_NET_BYTE_STREAM_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem {

// The result of reading or writing without blocking.
struct Moved {
  enum State {
    kSome,    // `size` bytes, at least one
    kWaits,   // none now
    kEnded,   // none any more: the other side has ended the stream
    kFailed,  // none any more
  };
  State state = kFailed;
  size_t size = 0;
};

// Two directions of bytes. Never blocks. Thread-compatible.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual Moved Read(absl::Span<std::byte> into) = 0;
  virtual Moved Write(absl::Span<const std::byte> bytes) = 0;
  // Sends what Write has kept back. kSome: nothing is left.
  virtual Moved Flush() { return {.state = Moved::kSome}; }
  // Why a call has returned kFailed.
  virtual absl::Status failure() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_BYTE_STREAM_H_
