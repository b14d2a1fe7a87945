// The handshake that authenticates two workers to each other.
#ifndef TANDEM_KVTRANSFER_HANDSHAKE_H_
#define TANDEM_KVTRANSFER_HANDSHAKE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvtransfer/wire_messages.h"

namespace tandem {

// One side of a handshake. Each side sends a hello. Then the side that connected proves first that
// it knows the secret, so that a stranger gets no proof to test guessed secrets on. The secret
// itself is not sent: each proof is HMAC-SHA256 over the role of its side and both hellos,
// including their nonces, so that it cannot be used again (ISO/IEC 9798-4). Messages are not
// encrypted. Thread-compatible.
class Handshake {
 public:
  struct Self {
    Hello hello;  // each handshake draws a new nonce
    std::string secret;
  };
  // `engine_id` is the expected engine id of the peer on the side that connects, and empty on the
  // other side.
  Handshake(const Self& self, absl::string_view engine_id);

  // The first message, from the side that connected.
  const Hello& hello() const { return self_.hello; }
  // Processes a message of the peer. Returns the answer, if one must be sent, or PERMISSION_DENIED
  // with the reason if the peer is refused.
  absl::StatusOr<std::optional<WireMessage>> Take(const WireMessage& message);

  bool is_done() const { return is_done_; }
  // The hello of the peer, which is not authenticated before is_done().
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

// Returns 256 random bits of the system.
Nonce NewNonce();
// Returns 32 random hexadecimal digits.
std::string NewEngineId();

}  // namespace tandem

#endif  // TANDEM_KVTRANSFER_HANDSHAKE_H_
