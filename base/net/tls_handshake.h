#ifndef TANDEM_BASE_NET_TLS_HANDSHAKE_H_
#define TANDEM_BASE_NET_TLS_HANDSHAKE_H_

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/net/byte_stream.h"
#include "base/net/sealed_stream.h"
#include "base/net/secret.h"

namespace tandem {

// How connections begin: TLS 1.3 with an external pre-shared key and an ephemeral key exchange (RFC
// 8446, RFC 9257). Certificates, tickets and early data are not used. One object serves all
// connections of a process; it outlives them. Thread-compatible.
class TlsSettings {
 public:
  // Returns the key with this identity, which a peer claims; nothing for an unknown identity.
  using FindKey = std::function<std::optional<PresharedKey>(absl::string_view identity)>;
  // UNAVAILABLE if OpenSSL lacks a part.
  static absl::StatusOr<std::unique_ptr<TlsSettings>> Create(FindKey find_key);

 private:
  friend class TlsHandshake;
  using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

  explicit TlsSettings(FindKey find_key) : find_key_(std::move(find_key)) {}
  absl::StatusOr<Context> MakeContext(bool connects) const;

  const FindKey find_key_;
  Context connecting_{nullptr, &SSL_CTX_free};
  Context listening_{nullptr, &SSL_CTX_free};
};

// The handshake of one connection, after which its bytes are sealed with the keys that it gives
// (base/net/sealed_stream.h). It takes no byte that follows the handshake. Thread-compatible.
class TlsHandshake {
 public:
  // For the side that connects and has this key.
  TlsHandshake(const TlsSettings& settings, ByteStream* wire, PresharedKey key);
  // For the side that listens.
  TlsHandshake(const TlsSettings& settings, ByteStream* wire);
  ~TlsHandshake();

  // Continues. kSome: it is complete, and both sides have proved that they have the key.
  Moved::State Continue();
  // What kWaits waits for.
  bool wants_to_write() const { return wants_to_write_; }
  // Why it has failed: PERMISSION_DENIED if the peer has another secret.
  const absl::Status& failure() const { return failure_; }

  // ---- Once it is complete ----
  // The identity of the key that both sides have.
  const std::string& identity() const { return key_.identity; }
  SealedStream::Keys keys() const;

 private:
  friend class TlsSettings;

  void Begin(SSL_CTX* context);
  // Callbacks of OpenSSL.
  static int UseKey(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* size,
                    SSL_SESSION** session);
  static int TakeIdentity(SSL* ssl, const unsigned char* identity, size_t size,
                          SSL_SESSION** session);
  static int ReadWire(BIO* bio, char* into, int size);
  static int WriteWire(BIO* bio, const char* bytes, int size);
  static BIO_METHOD* WireMethod();

  const TlsSettings& settings_;
  ByteStream& wire_;
  const bool connects_;
  PresharedKey key_;
  SSL* ssl_ = nullptr;
  absl::Status failure_;
  bool wants_to_write_ = false;
};

}  // namespace tandem

#endif  // TANDEM_BASE_NET_TLS_HANDSHAKE_H_
