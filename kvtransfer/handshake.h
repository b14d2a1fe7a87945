// How two workers come to trust each other.
#ifndef TANDEM_KVTRANSFER_HANDSHAKE_H_
#define TANDEM_KVTRANSFER_HANDSHAKE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvtransfer/wire_messages.h"

namespace tandem {

// One side of a handshake. Each side names itself. The side that connected then proves first that
// it knows the secret, so that a stranger gets nothing to try secrets on. The secret itself does
// not travel: each proof is HMAC-SHA256 over the role of its side and both hellos, nonces included,
// so that a proof is useless a second time (ISO/IEC 9798-4). Nothing is
// encrypted. Thread-compatible.
class Handshake {
 public:
  struct Self {
    Hello hello;  // its nonce is drawn anew for each handshake
    std::string secret;
  };
  // `engine_id`: of the peer that is wanted; empty for the side that was connected to, and only
  // for this one.
  Handshake(const Self& self, absl::string_view engine_id);

  // The first message, from the side that connected.
  const Hello& hello() const { return self_.hello; }
  // Takes a message of the peer. Returns the answer, if there is one; PERMISSION_DENIED, with the
  // reason, if this peer is refused.
  absl::StatusOr<std::optional<WireMessage>> Take(const WireMessage& message);

  bool is_done() const { return is_done_; }
  // The hello of the peer. Before is_done() it may be a stranger's.
  const Hello& peer() const { return peer_; }
  bool Shares(const PoolId& pool) const;

 private:
  absl::Status Check(const Hello& peer) const;
  Proof ProofOf(bool of_connecting_side) const;

  Self self_;
  const std::string wanted_engine_;
  const bool is_connecting_;
  bool has_peer_ = false;
  bool is_done_ = false;
  Hello peer_;
};

// 256 bits of the system's random numbers.
Nonce NewNonce();
// 32 digits, new with each call.
std::string NewEngineId();

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_HANDSHAKE_H_
