// For tests: streams in memory.
#ifndef TANDEM_BASE_NET_STREAM_TESTING_H_
#define TANDEM_BASE_NET_STREAM_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "base/net/byte_stream.h"

namespace tandem {

// One direction of bytes.
struct Pipe {
  std::string bytes;
  bool is_ended = false;
  size_t capacity = std::numeric_limits<size_t>::max();
};

// One end of two pipes.
class PipeStream final : public ByteStream {
 public:
  PipeStream(Pipe* from, Pipe* to) : from_(*from), to_(*to) {}

  Moved Read(absl::Span<std::byte> into) override {
    const size_t size = std::min({into.size(), from_.bytes.size(), most_at_once});
    if (size == 0) return {.state = from_.is_ended ? Moved::kEnded : Moved::kWaits};
    std::copy_n(reinterpret_cast<const std::byte*>(from_.bytes.data()), size, into.begin());
    from_.bytes.erase(0, size);
    return {.state = Moved::kSome, .size = size};
  }
  Moved Write(absl::Span<const std::byte> bytes) override {
    const size_t size = std::min({bytes.size(), to_.capacity - to_.bytes.size(), most_at_once});
    if (size == 0) return {.state = Moved::kWaits};
    to_.bytes.append(reinterpret_cast<const char*>(bytes.data()), size);
    return {.state = Moved::kSome, .size = size};
  }
  absl::Status failure() const override { return absl::UnavailableError("the pipe is cut"); }

  size_t most_at_once = std::numeric_limits<size_t>::max();

 private:
  Pipe& from_;
  Pipe& to_;
};

inline absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tandem

#endif  // TANDEM_BASE_NET_STREAM_TESTING_H_
