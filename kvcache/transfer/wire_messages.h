// The messages between two workers. Each is a MessagePack array of the message's number and its
// fields.
#ifndef TANDEM_KVCACHE_TRANSFER_WIRE_MESSAGES_H_
#define TANDEM_KVCACHE_TRANSFER_WIRE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/net/frame_channel.h"
#include "kvcache/store/page_id.h"

namespace tandem {

// Must change whenever one of these messages changes.
inline constexpr int64_t kWireVersion = 3;

// Limits on messages of a peer, checked before memory is allocated for them.
inline constexpr size_t kMaxMessageBytes = FrameChannel::kMaxMessageBytes;
inline constexpr int kMaxKeys = 1024;  // in one AskPages
inline constexpr int kMaxPools = 16;
inline constexpr int kMaxNameBytes = 512;  // of a lease, an engine, a request, a reason

// ---- The greeting of both sides ----
struct Hello {
  int64_t version = kWireVersion;
  std::string engine_id{};       // of this side
  std::string peer_engine_id{};  // of the other side; empty on the side that listens
  std::string build{};  // of the program, so that a refusal can name another build as its reason
  std::vector<PoolId> pools{};
  int64_t lease_ms = 0;  // how long its leases last after a heartbeat
};

// ---- From the receiver of pages ----
// Asks for pages, in this order, up to the first that will never be available. Without keys it only
// claims the lease: a connection can extend and release leases that it has asked for.
struct AskPages {
  uint64_t number = 0;  // different for each request of a connection
  std::string lease{};
  std::string request_id{};
  PoolId pool{};
  std::vector<PageKey> keys{};
};
// Cancels the AskPages of this number.
struct Cancel {
  uint64_t number = 0;
};
struct Heartbeat {
  std::string lease;
};
struct Release {
  std::string lease;
};

// ---- From the sender of pages ----
// Says that the first `num_sent` pages of an AskPages were sent, and that no more will be.
struct Finish {
  uint64_t number = 0;
  int64_t num_sent = 0;
  std::string reason;  // why not all pages were sent; empty if they were
};

using WireMessage = std::variant<Hello, AskPages, Cancel, Heartbeat, Release, Finish>;

std::string Encode(WireMessage message);
// Returns INVALID_ARGUMENT for other bytes, and for messages beyond the limits above.
absl::StatusOr<WireMessage> Decode(absl::Span<const std::byte> bytes);

}  // namespace tandem

#endif  // TANDEM_KVCACHE_TRANSFER_WIRE_MESSAGES_H_
