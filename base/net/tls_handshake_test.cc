#include "base/net/tls_handshake.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/secret_testing.h"
#include "base/net/stream_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<TlsSettings> SettingsFor(const PresharedKey& key) {
  return *TlsSettings::Create([key](absl::string_view identity) -> std::optional<PresharedKey> {
    if (identity != key.identity) return std::nullopt;
    return key;
  });
}

// Both sides of a connection whose bytes can be looked at and changed.
struct TlsPair {
  explicit TlsPair(const PresharedKey& connects, const PresharedKey& listens)
      : settings(SettingsFor(listens)),
        client(*settings, &client_wire, connects),
        server(*settings, &server_wire) {}
  explicit TlsPair(const PresharedKey& key) : TlsPair(key, key) {}

  // Returns the states in which both sides end.
  std::pair<Moved::State, Moved::State> Shake() {
    Moved::State one = Moved::kWaits, two = Moved::kWaits;
    for (int i = 0; i < 10; ++i) {
      if (one == Moved::kWaits) one = client.Continue();
      if (two == Moved::kWaits) two = server.Continue();
    }
    return {one, two};
  }

  Pipe up, down;
  PipeStream client_wire{&down, &up};
  PipeStream server_wire{&up, &down};
  std::unique_ptr<TlsSettings> settings;
  TlsHandshake client, server;
};

const PresharedKey& Key() {
  static const PresharedKey key = DerivePresharedKey(kTestSecret, "pages", "engine");
  return key;
}

TEST(TlsHandshake, GivesBothSidesTheSameKeysOnce) {
  TlsPair pair(Key()), other(Key());
  ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
  ASSERT_EQ(other.Shake(), std::pair(Moved::kSome, Moved::kSome));
  EXPECT_EQ(pair.server.identity(), Key().identity);
  const SealedStream::Keys one = pair.client.keys(), two = pair.server.keys();
  EXPECT_EQ(one.to_peer, two.from_peer);
  EXPECT_EQ(one.from_peer, two.to_peer);
  EXPECT_NE(one.to_peer, one.from_peer);
  EXPECT_NE(one.to_peer, other.client.keys().to_peer);
  EXPECT_EQ(pair.up.bytes + pair.down.bytes, "");  // no tickets
}

TEST(TlsHandshake, LeavesTheBytesThatFollow) {
  TlsPair pair(Key());
  pair.client.Continue();
  pair.server.Continue();
  ASSERT_EQ(pair.client.Continue(), Moved::kSome);
  pair.up.bytes += "sealed";
  ASSERT_EQ(pair.server.Continue(), Moved::kSome);
  EXPECT_EQ(pair.up.bytes, "sealed");
}

TEST(TlsHandshake, WorksByteByByte) {
  TlsPair pair(Key());
  pair.client_wire.most_at_once = pair.server_wire.most_at_once = 1;
  Moved::State one = Moved::kWaits, two = Moved::kWaits;
  while (one == Moved::kWaits || two == Moved::kWaits) {
    if (one == Moved::kWaits) one = pair.client.Continue();
    if (two == Moved::kWaits) two = pair.server.Continue();
  }
  EXPECT_EQ(std::pair(one, two), std::pair(Moved::kSome, Moved::kSome));
}

TEST(TlsHandshake, TheHelloIsSmallAndNamesTheKeyOnly) {
  TlsPair pair(Key());
  pair.client.Continue();
  EXPECT_LT(pair.up.bytes.size(), 400u);
  EXPECT_NE(pair.up.bytes.find("tandem/1 pages engine "), std::string::npos);
  EXPECT_EQ(pair.up.bytes.find(std::string(kTestSecret)), std::string::npos);
}

TEST(TlsHandshake, AnotherSecretIsRefusedOnBothSides) {
  // An unknown identity, and the right identity with another key.
  PresharedKey forged = DerivePresharedKey(kOtherSecret, "pages", "engine");
  for (const bool has_identity : {false, true}) {
    if (has_identity) forged.identity = Key().identity;
    TlsPair pair(forged, Key());
    EXPECT_EQ(pair.Shake(), std::pair(Moved::kFailed, Moved::kFailed));
    EXPECT_EQ(pair.client.failure(), absl::PermissionDeniedError("its secret differs from ours"));
    EXPECT_EQ(pair.server.failure(), absl::PermissionDeniedError("its secret differs from ours"));
  }
}

TEST(TlsHandshake, EachServiceAndScopeHasAKeyOfItsOwn) {
  for (const PresharedKey& other : {DerivePresharedKey(kTestSecret, "ranks", "engine"),
                                    DerivePresharedKey(kTestSecret, "pages", "another")}) {
    EXPECT_NE(other.key, Key().key);
    EXPECT_EQ(TlsPair(other, Key()).Shake(), std::pair(Moved::kFailed, Moved::kFailed));
  }
}

// ---- A peer that has other code ----

using Ssl = std::unique_ptr<SSL, decltype(&SSL_free)>;
using SslContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

// One side of a connection by plain calls of OpenSSL, over memory.
struct Rogue {
  explicit Rogue(SSL_CTX* context, bool connects) : ssl(SSL_new(context), &SSL_free) {
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
    connects ? SSL_set_connect_state(ssl.get()) : SSL_set_accept_state(ssl.get());
  }
  // Moves bytes between this side and the pipes.
  void Move(Pipe* from, Pipe* to) {
    BIO_write(in, from->bytes.data(), static_cast<int>(from->bytes.size()));
    from->bytes.clear();
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out, &bytes);
    to->bytes.append(bytes, size);
    BIO_reset(out);
  }
  Ssl ssl;
  BIO* in;
  BIO* out;
};

int UseKey(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* size,
           SSL_SESSION** session) {
  static const unsigned char kSuite[] = {0x13, 0x01};
  *session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(*session, Key().key.data(), Key().key.size());
  SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, kSuite));
  SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
  *identity = reinterpret_cast<const unsigned char*>(Key().identity.data());
  *size = Key().identity.size();
  return 1;
}

SslContext RogueContext(bool has_key) {
  SslContext context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256");
  if (has_key) SSL_CTX_set_psk_use_session_callback(context.get(), &UseKey);
  return context;
}

// Lets the rogue connect to our listening side. Returns whether our side finishes.
bool Finishes(SSL_CTX* context) {
  TlsPair pair(Key());
  Rogue rogue(context, /*connects=*/true);
  Moved::State state = Moved::kWaits;
  for (int i = 0; i < 10 && state == Moved::kWaits; ++i) {
    SSL_do_handshake(rogue.ssl.get());
    rogue.Move(&pair.down, &pair.up);
    state = pair.server.Continue();
  }
  return state == Moved::kSome;
}

TEST(TlsHandshake, OnlyTls13WithTheKeyAndAnEphemeralExchangeIsAccepted) {
  EXPECT_TRUE(Finishes(RogueContext(true).get()));  // the checks below can fail
  EXPECT_FALSE(Finishes(RogueContext(false).get()));
  SslContext old = RogueContext(true);
  SSL_CTX_set_max_proto_version(old.get(), TLS1_2_VERSION);
  EXPECT_FALSE(Finishes(old.get()));
  SslContext no_exchange = RogueContext(true);
  SSL_CTX_set_options(no_exchange.get(), SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set1_groups_list(no_exchange.get(), "X448");  // none that we accept
  EXPECT_FALSE(Finishes(no_exchange.get()));
  SslContext long_hash = RogueContext(true);
  SSL_CTX_set_ciphersuites(long_hash.get(), "TLS_AES_256_GCM_SHA384");
  EXPECT_FALSE(Finishes(long_hash.get()));
}

// A server without the secret ignores the key and shows a certificate.
TEST(TlsHandshake, ACertificateDoesNotReplaceTheKey) {
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  SslContext context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  ASSERT_EQ(SSL_CTX_use_certificate(context.get(), certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context.get(), key), 1);
  TlsPair pair(Key());
  Rogue rogue(context.get(), /*connects=*/false);
  Moved::State state = Moved::kWaits;
  for (int i = 0; i < 10 && state == Moved::kWaits; ++i) {
    state = pair.client.Continue();
    rogue.Move(&pair.up, &pair.down);
    SSL_do_handshake(rogue.ssl.get());
    rogue.Move(&pair.up, &pair.down);
  }
  EXPECT_EQ(state, Moved::kFailed);
  EXPECT_TRUE(absl::IsPermissionDenied(pair.client.failure())) << pair.client.failure();
  X509_free(certificate);
  EVP_PKEY_free(key);
}

// Each worker's key has the name of the side that listens, so that a worker does not accept what it
// has sent itself (RFC 9257, section 4.1).
TEST(TlsHandshake, ReflectedBytesAreRefused) {
  const PresharedKey to_other = DerivePresharedKey(kTestSecret, "pages", "other");
  TlsPair pair(to_other, Key());
  pair.client.Continue();
  EXPECT_EQ(pair.server.Continue(), Moved::kFailed);
}

TEST(TlsHandshake, ReplayedBytesAreRefused) {
  TlsPair first(Key());
  std::string recorded;
  first.client.Continue();
  recorded += first.up.bytes;
  first.server.Continue();
  first.client.Continue();
  recorded += first.up.bytes;
  TlsPair second(Key());
  second.up.bytes = recorded;
  EXPECT_NE(second.server.Continue(), Moved::kSome);
}

TEST(TlsHandshake, EveryFlippedOrMissingByteIsNoticed) {
  TlsPair clean(Key());
  clean.client.Continue();
  const size_t hello_bytes = clean.up.bytes.size();
  for (size_t i = 0; i < hello_bytes; ++i) {
    if (i == 2) continue;  // a record's minor version is ignored (RFC 8446, section 5.1)
    TlsPair pair(Key());
    pair.client.Continue();
    pair.up.bytes[i] ^= 1;
    pair.Shake();
    // The random bytes of a hello are covered by the binder.
    EXPECT_NE(pair.server.Continue(), Moved::kSome) << i;
    TlsPair cut(Key());
    cut.client.Continue();
    cut.up.bytes.resize(i);
    cut.up.is_ended = true;
    EXPECT_EQ(cut.server.Continue(), Moved::kFailed) << i;
  }
}

}  // namespace
}  // namespace tandem
