// Frames: what travels on a connection.
#ifndef TANDEM_BASE_NET_FRAME_CHANNEL_H_
#define TANDEM_BASE_NET_FRAME_CHANNEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/instant.h"
#include "base/net/byte_stream.h"

namespace tandem {

// Names a block of bytes, whose meaning is up to the users of a link. Integers are sent as
// little-endian.
struct BlockHeader {
  uint64_t tag = 0;
  uint64_t index = 0;
  uint64_t checksum = 0;
};

using BlockBuffer = std::shared_ptr<std::vector<std::byte>>;

// Callbacks for what arrives. They may call the channel's Send functions and Stop.
class FrameEvents {
 public:
  virtual ~FrameEvents() = default;
  virtual void OnMessage(absl::Span<const std::byte> bytes) = 0;
  // A block of `size` bytes arrives. Returns a buffer for it, or null if it is not wanted. A buffer
  // that is smaller than the block grows as bytes arrive.
  virtual BlockBuffer OnBlock(const BlockHeader& header, size_t size) = 0;
  // The buffer of a block has been filled.
  virtual void OnBlockReceived(const BlockHeader& header) = 0;
  // All bytes of a block have been given to the stream. Must not call the channel.
  virtual void OnBlockSent(size_t size) = 0;
  // The peer offers another way for blocks (base/net/block_path.h).
  virtual void OnPath(uint64_t /*token*/, absl::string_view /*address*/) {}
};

// Sends and receives frames over a stream:
//   length of the rest (4 bytes), type (1), zeros (3), the rest
// Each length is checked before memory is taken for it. Messages go ahead of blocks that have not
// begun. Thread-compatible.
class FrameChannel {
 public:
  // `timeout`: how long the peer may need for a message, and between two bytes of a block
  FrameChannel(ByteStream* stream, FrameEvents* events, absl::Duration timeout);

  static constexpr size_t kMaxMessageBytes = size_t{64} << 10;
  static constexpr size_t kMaxGreetingBytes = size_t{4} << 10;
  static constexpr size_t kMaxPathBytes = size_t{16} << 10;      // of an address
  static constexpr size_t kMaxUnsentMessages = size_t{1} << 20;  // bytes
  // Bytes in a row. A reader that stops has asked for 8 MiB, which may be on the way.
  static constexpr size_t kMaxUnwantedBlocks = size_t{256} << 20;
  static constexpr size_t kGrowth = size_t{4} << 20;  // of a buffer

  // Allows longer messages, blocks and paths. Before, the peer may send its greeting only.
  void Admit() { is_admitted_ = true; }
  // Ignores what else has arrived.
  void Stop() { has_stopped_ = true; }

  // Each returns UNAVAILABLE if the peer does not read.
  absl::Status SendMessage(absl::string_view bytes);
  absl::Status SendBeat();
  absl::Status SendPath(uint64_t token, absl::string_view address);
  // The last frame: says why this side ends the connection.
  absl::Status SendEnd(const absl::Status& why);
  // `bytes` are valid as long as `owner` lives.
  void SendBlock(const BlockHeader& header, absl::Span<const std::byte> bytes,
                 std::shared_ptr<const void> owner);

  // Writes what the stream accepts, up to a limit. An error ends the connection.
  absl::Status Flush();
  // Reads what has arrived, up to a limit, and calls the events. An error ends the connection: it
  // is the peer's own if has_ended().
  absl::Status Receive();
  // Returns an error if the peer takes too long for a frame, or accepts no bytes.
  absl::Status CheckDeadlines(Instant now) const;

  bool has_unsent() const { return has_kept_back_ || has_frames(); }
  // Whether the last Flush or Receive stopped at its limit, so that it can go on at once.
  bool can_go_on() const { return can_flush_ || can_receive_; }
  bool has_ended() const { return has_ended_; }
  // Whether the last Receive read anything.
  bool has_received() const { return has_received_; }
  // When the last byte arrived.
  Instant heard() const { return heard_; }

 private:
  enum Type : uint8_t { kMessage = 1, kBlock = 2, kEnd = 3, kBeat = 4, kPath = 5 };
  enum class Part { kHeader, kBlockHeader, kRest };
  static constexpr size_t kHeaderBytes = 8;
  static constexpr size_t kBlockHeaderBytes = 3 * sizeof(uint64_t);
  struct Unsent {
    BlockHeader header;
    absl::Span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
    size_t num_written = 0;  // `header` and `bytes` are in one frame
    bool has_begun = false;
  };

  bool has_frames() const { return !staged_.empty() || !messages_.empty() || !blocks_.empty(); }
  absl::Status WriteFrames();
  absl::Status Queue(Type type, absl::string_view bytes);
  void Stage();
  absl::Span<std::byte> Target();
  absl::Status TakePart();
  absl::Status TakeHeader();
  absl::Status TakeBlockHeader();
  size_t MostBytes(uint32_t type) const;
  absl::Status TakeFrame();
  void Expect(Part part, size_t num_bytes);

  ByteStream& stream_;
  FrameEvents& events_;
  const absl::Duration timeout_;
  bool is_admitted_ = false;
  bool has_stopped_ = false;
  bool has_ended_ = false;
  bool can_flush_ = false;
  bool can_receive_ = false;
  bool has_received_ = false;
  bool has_kept_back_ = false;  // the stream

  // ---- To the peer ----
  std::string messages_;  // whole frames
  std::deque<Unsent> blocks_;
  std::string staged_;  // the next bytes, of messages or of the beginning of a block
  size_t num_staged_written_ = 0;
  Instant accepted_;  // when the stream accepted bytes, or since when some are unsent

  // ---- From the peer ----
  Part part_ = Part::kHeader;
  size_t wanted_ = kHeaderBytes;  // bytes of this part
  size_t received_ = 0;           // of these
  Type type_ = kMessage;
  size_t rest_ = 0;  // bytes of the frame after its header
  std::array<std::byte, kBlockHeaderBytes> head_;
  std::vector<std::byte> message_;
  BlockHeader block_;
  BlockBuffer buffer_;  // null if the block is not wanted
  size_t num_unwanted_ = 0;
  Instant began_;  // the frame
  Instant heard_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_FRAME_CHANNEL_H_
