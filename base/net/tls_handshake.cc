#include "base/net/tls_handshake.h"

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
constexpr absl::string_view kLabel = "EXPORTER-tandem-sealed";     // RFC 8446, section 7.5

TlsHandshake* HandshakeOf(const SSL* ssl) {
  return static_cast<TlsHandshake*>(SSL_get_app_data(ssl));
}

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

absl::StatusOr<std::unique_ptr<TlsSettings>> TlsSettings::Create(FindKey find_key) {
  std::unique_ptr<TlsSettings> settings(new TlsSettings(std::move(find_key)));
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
  // Bytes that follow the handshake are not TLS's.
  SSL_CTX_set_read_ahead(ctx, 0);
  if (connects) {
    SSL_CTX_set_psk_use_session_callback(ctx, &TlsHandshake::UseKey);
    // A server without the key may show a certificate in its place. No issuer is trusted.
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_CTX_set_psk_find_session_callback(ctx, &TlsHandshake::TakeIdentity);
  }
  return context;
}

// ---- Handshakes ----

TlsHandshake::TlsHandshake(const TlsSettings& settings, ByteStream* wire, PresharedKey key)
    : settings_(settings), wire_(*wire), connects_(true), key_(std::move(key)) {
  Begin(settings.connecting_.get());
}

TlsHandshake::TlsHandshake(const TlsSettings& settings, ByteStream* wire)
    : settings_(settings), wire_(*wire), connects_(false) {
  Begin(settings.listening_.get());
}

void TlsHandshake::Begin(SSL_CTX* context) {
  ssl_ = SSL_new(context);
  BIO* const bio = BIO_new(WireMethod());
  TANDEM_CHECK(ssl_ != nullptr && bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  connects_ ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
}

TlsHandshake::~TlsHandshake() { SSL_free(ssl_); }

Moved::State TlsHandshake::Continue() {
  ERR_clear_error();
  const int returned = SSL_do_handshake(ssl_);
  // A session is reused only with the key, whatever else the peer has shown.
  if (returned == 1 && SSL_session_reused(ssl_) == 1) return Moved::kSome;
  const int error = SSL_get_error(ssl_, returned);
  wants_to_write_ = error == SSL_ERROR_WANT_WRITE;
  if (wants_to_write_ || error == SSL_ERROR_WANT_READ) return Moved::kWaits;
  const unsigned long code = ERR_peek_error();
  switch (ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0) {
    // The alerts of a listening side that has no such identity, or another key; a certificate in
    // place of the key; and the errors of the listening side itself.
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
      failure_ = absl::PermissionDeniedError("its secret differs from ours");
      break;
    case 0:
      failure_ = returned == 1 ? absl::PermissionDeniedError("it has not proved its secret")
                               : absl::UnavailableError("it has closed the connection");
      break;
    default:
      failure_ = absl::InvalidArgumentError(absl::StrCat(
          "it does not speak TLS 1.3 with the secret: ", ERR_reason_error_string(code)));
  }
  return Moved::kFailed;
}

SealedStream::Keys TlsHandshake::keys() const {
  std::array<SealedStream::Key, 2> both;  // of the side that connects, and of the other
  TANDEM_CHECK(SSL_export_keying_material(ssl_, both[0].data(), sizeof(both), kLabel.data(),
                                          kLabel.size(), nullptr, 0, 0) == 1);
  return {.to_peer = both[connects_ ? 0 : 1], .from_peer = both[connects_ ? 1 : 0]};
}

// ---- Callbacks of OpenSSL ----

int TlsHandshake::UseKey(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* size,
                         SSL_SESSION** session) {
  const PresharedKey& key = HandshakeOf(ssl)->key_;
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

int TlsHandshake::TakeIdentity(SSL* ssl, const unsigned char* identity, size_t size,
                               SSL_SESSION** session) {
  TlsHandshake& handshake = *HandshakeOf(ssl);
  *session = nullptr;
  std::optional<PresharedKey> key =
      handshake.settings_.find_key_({reinterpret_cast<const char*>(identity), size});
  if (!key.has_value()) return 1;
  handshake.key_ = *std::move(key);
  *session = SessionOf(ssl, handshake.key_);
  return 1;
}

int TlsHandshake::ReadWire(BIO* bio, char* into, int size) {
  auto& handshake = *static_cast<TlsHandshake*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const Moved moved = handshake.wire_.Read(
      {reinterpret_cast<std::byte*>(into), static_cast<size_t>(std::max(size, 0))});
  if (moved.state == Moved::kWaits) BIO_set_retry_read(bio);
  return moved.state == Moved::kSome ? static_cast<int>(moved.size) : -1;
}

int TlsHandshake::WriteWire(BIO* bio, const char* bytes, int size) {
  auto& handshake = *static_cast<TlsHandshake*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const Moved moved = handshake.wire_.Write(
      {reinterpret_cast<const std::byte*>(bytes), static_cast<size_t>(std::max(size, 0))});
  if (moved.state == Moved::kWaits) BIO_set_retry_write(bio);
  return moved.state == Moved::kSome ? static_cast<int>(moved.size) : -1;
}

BIO_METHOD* TlsHandshake::WireMethod() {
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
