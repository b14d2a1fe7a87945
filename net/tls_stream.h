#ifndef TANDEM_NET_TLS_STREAM_H_
#define TANDEM_NET_TLS_STREAM_H_

#include <openssl/ssl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/byte_stream.h"
#include "net/secret.h"

namespace tandem {

// How connections are secured: TLS 1.3 with an external pre-shared key and an ephemeral key
// exchange (RFC 8446, RFC 9257). There are no certificates, tickets and early data. One object
// serves all connections of a process; it outlives them. Thread-compatible.
class TlsSettings {
 public:
  // Returns the key with this identity, which a peer claims; nothing for an unknown identity.
  using FindKey = std::function<std::optional<PresharedKey>(absl::string_view identity)>;
  // Records after which a side replaces its keys, below the limit of 2^24.5 for AES-GCM (RFC 8446,
  // section 5.5).
  static constexpr int64_t kRecordsPerKey = int64_t{1} << 22;
  // UNAVAILABLE if OpenSSL lacks a part.
  static absl::StatusOr<std::unique_ptr<TlsSettings>> Create(
      FindKey find_key, int64_t records_per_key = kRecordsPerKey);

 private:
  friend class TlsStream;
  using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

  TlsSettings(FindKey find_key, int64_t records_per_key)
      : find_key_(std::move(find_key)), records_per_key_(records_per_key) {}
  absl::StatusOr<Context> MakeContext(bool connects) const;

  const FindKey find_key_;
  const int64_t records_per_key_;
  Context connecting_{nullptr, &SSL_CTX_free};
  Context listening_{nullptr, &SSL_CTX_free};
};

// The bytes of one secured connection. Thread-compatible.
class TlsStream final : public ByteStream {
 public:
  // For the side that connects and has this key.
  TlsStream(const TlsSettings& settings, ByteStream* wire, PresharedKey key);
  // For the side that listens.
  TlsStream(const TlsSettings& settings, ByteStream* wire);
  ~TlsStream() override;

  // Continues the handshake. kSome: it is complete, and both sides have proved that they have the
  // key. Afterwards `wants_to_write` says what kWaits waits for.
  Moved::State Shake();
  bool wants_to_write() const { return wants_to_write_; }
  // The identity of the key that the connection has.
  const std::string& identity() const { return key_.identity; }

  Moved Read(absl::Span<std::byte> into) override;
  // Writes one record, of at most 16,384 bytes.
  Moved Write(absl::Span<const std::byte> bytes) override;
  // Tells the peer that nothing more will be written.
  void End();

  absl::Status failure() const override { return failure_; }

 private:
  friend class TlsSettings;

  void Begin(SSL_CTX* context, bool connects);
  Moved::State Result(int returned);
  // Callbacks of OpenSSL.
  static int UseKey(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* size,
                    SSL_SESSION** session);
  static int TakeIdentity(SSL* ssl, const unsigned char* identity, size_t size,
                          SSL_SESSION** session);
  static void LookAt(int is_written, int version, int type, const void* bytes, size_t size,
                     SSL* ssl, void* unused);
  static int ReadWire(BIO* bio, char* into, int size);
  static int WriteWire(BIO* bio, const char* bytes, int size);
  static BIO_METHOD* WireMethod();

  const TlsSettings& settings_;
  ByteStream& wire_;
  PresharedKey key_;
  SSL* ssl_ = nullptr;
  absl::Status failure_;
  bool is_shaken_ = false;
  bool wants_to_write_ = false;
  bool has_ended_ = false;   // the wire, at whatever byte
  int64_t num_written_ = 0;  // records since this side's keys were replaced
  int64_t num_read_ = 0;     // records since the peer's keys were replaced
};

}  // namespace tandem

#endif  // TANDEM_NET_TLS_STREAM_H_
