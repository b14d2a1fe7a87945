#include "kvtransfer/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/string_view.h"

namespace tandem {

Nonce NewNonce() {
  Nonce nonce;
  TANDEM_CHECK(getentropy(nonce.data(), nonce.size()) == 0);
  return nonce;
}

std::string NewEngineId() {
  const Nonce nonce = NewNonce();
  return absl::BytesToHexString(View(absl::MakeConstSpan(nonce).first(16)));
}

Handshake::Handshake(const Self& self, absl::string_view engine_id)
    : self_(self), wanted_engine_(engine_id), is_connecting_(!engine_id.empty()) {
  self_.hello.nonce = NewNonce();
}

absl::StatusOr<std::optional<WireMessage>> Handshake::Take(const WireMessage& message) {
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    return absl::PermissionDeniedError(
        absl::StrCat("it refuses: ", absl::CHexEscape(refusal->reason)));
  }
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && !has_peer_) {
    RETURN_IF_ERROR(Check(*hello));
    peer_ = *hello;
    has_peer_ = true;
    if (is_connecting_) return SecretProof{ProofOf(/*of_connecting_side=*/true)};
    return self_.hello;
  }
  const auto* proof = std::get_if<SecretProof>(&message);
  if (proof == nullptr || !has_peer_ || is_done_) {
    return absl::PermissionDeniedError("it sent a message out of turn");
  }
  const Proof expected = ProofOf(/*of_connecting_side=*/!is_connecting_);
  if (CRYPTO_memcmp(proof->proof.data(), expected.data(), expected.size()) != 0) {
    return absl::PermissionDeniedError("its secret differs from ours");
  }
  is_done_ = true;
  if (is_connecting_) return std::nullopt;
  return SecretProof{ProofOf(/*of_connecting_side=*/false)};
}

absl::Status Handshake::Check(const Hello& peer) const {
  if (peer.version != self_.hello.version) {
    return absl::PermissionDeniedError(
        absl::StrCat("its wire version is ", peer.version, ", ours is ", self_.hello.version));
  }
  if (is_connecting_ && peer.engine_id != wanted_engine_) {
    return absl::PermissionDeniedError(absl::StrCat("it is the engine ",
                                                    absl::CHexEscape(peer.engine_id), ", not ",
                                                    absl::CHexEscape(wanted_engine_)));
  }
  const bool shares_any =
      std::any_of(peer.pools.begin(), peer.pools.end(), [&](const PoolId& pool) {
        return std::find(self_.hello.pools.begin(), self_.hello.pools.end(), pool) !=
               self_.hello.pools.end();
      });
  if (!shares_any) {
    return absl::PermissionDeniedError(
        "its pages are of other models, options or instruction sets: no pool is common to both");
  }
  return absl::OkStatus();
}

bool Handshake::Shares(const PoolId& pool) const {
  const auto has = [&](const Hello& side) {
    return std::find(side.pools.begin(), side.pools.end(), pool) != side.pools.end();
  };
  return has(self_.hello) && has(peer_);
}

Proof Handshake::ProofOf(bool of_connecting_side) const {
  PartHasher said;
  said.Add(of_connecting_side ? "connects" : "is connected to");
  for (const Hello* hello :
       {is_connecting_ ? &self_.hello : &peer_, is_connecting_ ? &peer_ : &self_.hello}) {
    said.Add(Encode(*hello));
  }
  const PartHasher::Digest digest = said.Finish();
  Proof proof;
  unsigned int size = 0;
  TANDEM_CHECK(HMAC(EVP_sha256(), self_.secret.data(), static_cast<int>(self_.secret.size()),
                    reinterpret_cast<const unsigned char*>(digest.data()), digest.size(),
                    reinterpret_cast<unsigned char*>(proof.data()), &size) != nullptr);
  TANDEM_CHECK(size == proof.size());
  return proof;
}

}  // namespace tandem
