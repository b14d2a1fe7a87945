// What two workers say to each other, in MessagePack: an array of the message's number and fields.
#ifndef TANDEM_KVTRANSFER_WIRE_MESSAGES_H_
#define TANDEM_KVTRANSFER_WIRE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvstore/page_id.h"

namespace tandem {

// Changes when any of these messages, or PageHeader, does.
inline constexpr int64_t kWireVersion = 1;

// Limits on messages of a peer, checked before memory is taken for them.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 10;
inline constexpr int kMaxKeys = 1024;  // of one AskPages
inline constexpr int kMaxPools = 16;
inline constexpr int kMaxNameBytes = 16384;  // of a lease, an engine, a reason, an address

using Nonce = PartHasher::Digest;  // 256 random bits
using Proof = PartHasher::Digest;  // HMAC-SHA256

// ---- The handshake: Hello, Hello, Proof, Proof; or a Refusal in place of any but the first ----
struct Hello {
  int64_t version = kWireVersion;
  std::string engine_id{};
  std::vector<PoolId> pools{};
  Nonce nonce = {};
  std::string page_address{};  // PageLink::page_address
  int64_t lease_ms = 0;        // how long its leases last after a heartbeat
};
struct SecretProof {
  Proof proof = {};
};
struct Refusal {
  std::string reason;
};

// ---- From the receiver of pages ----
// Wants pages, in this order, up to the first that will never be there.
struct AskPages {
  uint64_t number = 0;  // new with each
  std::string lease{};
  std::string request_id{};
  PoolId pool{};
  std::vector<PageKey> keys{};
};
// No longer wants what it asked for.
struct Cancel {
  uint64_t number = 0;
};
struct Heartbeat {
  std::string lease;
};
struct Release {
  std::string lease;
};

// ---- From their sender ----
// All is well; pages are still computed, or on their way.
struct Coming {};
// It has sent the first `num_sent` pages of an AskPages, and sends no more.
struct Finish {
  uint64_t number = 0;
  int64_t num_sent = 0;
  std::string reason;  // why not all; empty if it sent all
};

using WireMessage =
    std::variant<Hello, SecretProof, Refusal, AskPages, Cancel, Heartbeat, Release, Coming, Finish>;

std::string Encode(WireMessage message);
// INVALID_ARGUMENT for other bytes, and for messages beyond the limits above.
absl::StatusOr<WireMessage> Decode(absl::Span<const std::byte> bytes);

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_WIRE_MESSAGES_H_
