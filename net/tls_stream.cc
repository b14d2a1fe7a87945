#include "net/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// Suites with SHA-384 would not fit the hash of the keys.
constexpr const char* kSuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kGroups = "X25519:P-256";
constexpr std::array<unsigned char, 2> kAes128Gcm = {0x13, 0x01};  // RFC 8446, appendix B.4
// Bytes that one system call may read: several records.
constexpr size_t kReadAhead = 70'000;
constexpr int64_t kLeastRecordsPerKey = 1000;  // of a peer

TlsStream* StreamOf(const SSL* ssl) { return static_cast<TlsStream*>(SSL_get_app_data(ssl)); }

SSL_SESSION* SessionOf(SSL* ssl, const PresharedKey& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  TANDEM_CHECK(session != nullptr &&
               SSL_SESSION_set1_master_key(session, key.key.data(), key.key.size()) == 1 &&
               SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kAes128Gcm.data())) == 1 &&
               SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
  return session;
}

}  // namespace

// ---- Settings ----

absl::StatusOr<std::unique_ptr<TlsSettings>> TlsSettings::Create(FindKey find_key,
                                                                 int64_t records_per_key) {
  std::unique_ptr<TlsSettings> settings(new TlsSettings(std::move(find_key), records_per_key));
  ASSIGN_OR_RETURN(settings->connecting_, settings->MakeContext(/*connects=*/true));
  ASSIGN_OR_RETURN(settings->listening_, settings->MakeContext(/*connects=*/false));
  return settings;
}

// Sets everything explicitly, because the machine's openssl.cnf may have other defaults.
absl::StatusOr<TlsSettings::Context> TlsSettings::MakeContext(bool connects) const {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  SSL_CTX* const ctx = context.get();
  const bool has_all =
      ctx != nullptr && SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(ctx, kSuites) == 1 && SSL_CTX_set1_groups_list(ctx, kGroups) == 1 &&
      SSL_CTX_set_num_tickets(ctx, 0) == 1 && SSL_CTX_set_max_early_data(ctx, 0) == 1;
  if (!has_all) {
    return absl::UnavailableError(
        absl::StrCat("OpenSSL has no TLS 1.3 with ", kSuites, " and ", kGroups));
  }
  SSL_CTX_set_security_level(ctx, 2);
  SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(ctx, 1);
  SSL_CTX_set_default_read_buffer_len(ctx, kReadAhead);
  SSL_CTX_set_msg_callback(ctx, &TlsStream::LookAt);
  if (connects) {
    SSL_CTX_set_psk_use_session_callback(ctx, &TlsStream::UseKey);
    // A server without the key may show a certificate in its place. Nobody is trusted to issue one.
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_CTX_set_psk_find_session_callback(ctx, &TlsStream::TakeIdentity);
  }
  return context;
}

// ---- Streams ----

TlsStream::TlsStream(const TlsSettings& settings, ByteStream* wire, PresharedKey key)
    : settings_(settings), wire_(*wire), key_(std::move(key)) {
  Begin(settings.connecting_.get(), /*connects=*/true);
}

TlsStream::TlsStream(const TlsSettings& settings, ByteStream* wire)
    : settings_(settings), wire_(*wire) {
  Begin(settings.listening_.get(), /*connects=*/false);
}

void TlsStream::Begin(SSL_CTX* context, bool connects) {
  ssl_ = SSL_new(context);
  BIO* const bio = BIO_new(WireMethod());
  TANDEM_CHECK(ssl_ != nullptr && bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  connects ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

Moved::State TlsStream::Shake() {
  ERR_clear_error();
  const Moved::State state = Result(SSL_do_handshake(ssl_));
  if (state != Moved::kSome) return state;
  // Without the key there is no reused session, whatever else the peer has shown.
  if (SSL_session_reused(ssl_) != 1 || key_.identity.empty()) {
    failure_ = absl::PermissionDeniedError("it has not proved that it has the secret");
    return Moved::kFailed;
  }
  is_shaken_ = true;
  return Moved::kSome;
}

Moved TlsStream::Read(absl::Span<std::byte> into) {
  ERR_clear_error();
  Moved moved;
  moved.state = Result(SSL_read_ex(ssl_, into.data(), into.size(), &moved.size));
  return moved;
}

Moved TlsStream::Write(absl::Span<const std::byte> bytes) {
  ERR_clear_error();
  if (num_written_ >= settings_.records_per_key_ &&
      SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    num_written_ = 0;
  }
  Moved moved;
  moved.state = Result(SSL_write_ex(ssl_, bytes.data(), bytes.size(), &moved.size));
  if (moved.state == Moved::kSome) ++num_written_;
  return moved;
}

void TlsStream::End() {
  ERR_clear_error();
  if (is_shaken_ && failure_.ok()) SSL_shutdown(ssl_);
}

Moved::State TlsStream::Result(int returned) {
  if (!failure_.ok()) return Moved::kFailed;
  if (returned == 1) return Moved::kSome;
  const int error = SSL_get_error(ssl_, returned);
  wants_to_write_ = error == SSL_ERROR_WANT_WRITE;
  if (wants_to_write_ || error == SSL_ERROR_WANT_READ) return Moved::kWaits;
  if (error == SSL_ERROR_ZERO_RETURN) return Moved::kEnded;
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  // The alerts that a listening side without the identity, or with another key, sends.
  const bool is_refusal =
      reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE ||
      reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER || reason == SSL_R_CERTIFICATE_VERIFY_FAILED ||
      reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
      reason == SSL_R_NO_SHARED_CIPHER;
  if (!is_shaken_ && is_refusal) {
    failure_ = absl::PermissionDeniedError("its secret differs from ours");
  } else if (has_ended_ || code == 0) {
    failure_ = absl::UnavailableError(is_shaken_ ? "the connection was cut"
                                                 : "it has closed the connection");
  } else {
    const char* const why = ERR_reason_error_string(code);
    failure_ = absl::InvalidArgumentError(absl::StrCat(
        is_shaken_ ? "it sent a malformed record" : "it does not speak TLS 1.3 with the secret",
        ": ", why == nullptr ? "failed" : why));
  }
  return Moved::kFailed;
}

// ---- Callbacks of OpenSSL ----

int TlsStream::UseKey(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* size,
                      SSL_SESSION** session) {
  const PresharedKey& key = StreamOf(ssl)->key_;
  *session = SessionOf(ssl, key);
  *identity = reinterpret_cast<const unsigned char*>(key.identity.data());
  *size = key.identity.size();
  // After a HelloRetryRequest the hash is known.
  if (hash != nullptr &&
      hash != SSL_CIPHER_get_handshake_digest(SSL_SESSION_get0_cipher(*session))) {
    SSL_SESSION_free(*session);
    *session = nullptr;
    *size = 0;
  }
  return 1;
}

int TlsStream::TakeIdentity(SSL* ssl, const unsigned char* identity, size_t size,
                            SSL_SESSION** session) {
  TlsStream& stream = *StreamOf(ssl);
  *session = nullptr;
  std::optional<PresharedKey> key =
      stream.settings_.find_key_({reinterpret_cast<const char*>(identity), size});
  if (!key.has_value()) return 1;
  stream.key_ = *std::move(key);
  *session = SessionOf(ssl, stream.key_);
  return 1;
}

// Counts records, and refuses messages that no peer of ours sends after the handshake.
void TlsStream::LookAt(int is_written, int, int type, const void* bytes, size_t size, SSL* ssl,
                       void*) {
  TlsStream& stream = *StreamOf(ssl);
  if (is_written != 0 || !stream.is_shaken_) return;
  if (type == SSL3_RT_HEADER) ++stream.num_read_;
  if (type != SSL3_RT_HANDSHAKE) return;
  const bool is_update = size > 0 && *static_cast<const uint8_t*>(bytes) == SSL3_MT_KEY_UPDATE;
  const bool is_due = std::exchange(stream.num_read_, 0) >= kLeastRecordsPerKey;
  if (is_update && is_due) return;
  stream.failure_ = absl::PermissionDeniedError("it sent a message of TLS out of turn");
}

int TlsStream::ReadWire(BIO* bio, char* into, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const Moved moved = stream.wire_.Read(
      {reinterpret_cast<std::byte*>(into), static_cast<size_t>(std::max(size, 0))});
  if (moved.state == Moved::kWaits) BIO_set_retry_read(bio);
  if (moved.state == Moved::kEnded || moved.state == Moved::kFailed) stream.has_ended_ = true;
  return moved.state == Moved::kSome ? static_cast<int>(moved.size) : -1;
}

int TlsStream::WriteWire(BIO* bio, const char* bytes, int size) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const Moved moved = stream.wire_.Write(
      {reinterpret_cast<const std::byte*>(bytes), static_cast<size_t>(std::max(size, 0))});
  if (moved.state == Moved::kWaits) BIO_set_retry_write(bio);
  if (moved.state == Moved::kFailed) stream.has_ended_ = true;
  return moved.state == Moved::kSome ? static_cast<int>(moved.size) : -1;
}

BIO_METHOD* TlsStream::WireMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
    TANDEM_CHECK(made != nullptr);
    BIO_meth_set_read(made, &ReadWire);
    BIO_meth_set_write(made, &WriteWire);
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  return method;
}

}  // namespace tandem
