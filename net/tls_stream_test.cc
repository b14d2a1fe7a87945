#include "net/tls_stream.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/secret_testing.h"
#include "net/stream_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRecordsPerKey = 5000;

std::unique_ptr<TlsSettings> SettingsFor(const PresharedKey& key) {
  return *TlsSettings::Create(
      [key](absl::string_view identity) -> std::optional<PresharedKey> {
        if (identity != key.identity) return std::nullopt;
        return key;
      },
      kRecordsPerKey);
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
      if (one == Moved::kWaits) one = client.Shake();
      if (two == Moved::kWaits) two = server.Shake();
    }
    return {one, two};
  }

  Pipe up, down;
  PipeStream client_wire{&down, &up};
  PipeStream server_wire{&up, &down};
  std::unique_ptr<TlsSettings> settings;
  TlsStream client, server;
};

const PresharedKey& Key() {
  static const PresharedKey key = DerivePresharedKey(kTestSecret, "pages", "engine");
  return key;
}

std::string ReadAll(ByteStream* stream, Moved::State* end = nullptr) {
  std::string text;
  for (;;) {
    std::byte bytes[1000];
    const Moved moved = stream->Read(bytes);
    if (moved.state != Moved::kSome) {
      if (end != nullptr) *end = moved.state;
      return text;
    }
    text += AsText({bytes, moved.size});
  }
}

void Write(ByteStream* stream, absl::string_view text) {
  while (!text.empty()) {
    const Moved moved = stream->Write(AsBytes(text.substr(0, 16384)));
    ASSERT_EQ(moved.state, Moved::kSome);
    text.remove_prefix(moved.size);
  }
}

TEST(TlsStream, CarriesBytesInBothDirections) {
  TlsPair pair(Key());
  ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
  EXPECT_EQ(pair.server.identity(), Key().identity);
  const std::string text(100'000, 'x');
  Write(&pair.client, text);
  Write(&pair.server, "answer");
  EXPECT_EQ(pair.up.bytes.find("xxxx"), std::string::npos);
  EXPECT_EQ(ReadAll(&pair.server), text);
  EXPECT_EQ(ReadAll(&pair.client), "answer");
}

TEST(TlsStream, WorksByteByByte) {
  TlsPair pair(Key());
  pair.client_wire.most_at_once = pair.server_wire.most_at_once = 1;
  Moved::State one = Moved::kWaits, two = Moved::kWaits;
  while (one == Moved::kWaits || two == Moved::kWaits) {
    if (one == Moved::kWaits) one = pair.client.Shake();
    if (two == Moved::kWaits) two = pair.server.Shake();
  }
  EXPECT_EQ(std::pair(one, two), std::pair(Moved::kSome, Moved::kSome));
}

TEST(TlsStream, TheHelloIsSmallAndNamesTheKeyOnly) {
  TlsPair pair(Key());
  pair.client.Shake();
  EXPECT_LT(pair.up.bytes.size(), 400u);
  EXPECT_NE(pair.up.bytes.find("tandem/1 pages engine "), std::string::npos);
  EXPECT_EQ(pair.up.bytes.find(std::string(kTestSecret)), std::string::npos);
}

TEST(TlsStream, AnotherSecretIsRefusedOnBothSides) {
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

TEST(TlsStream, EachServiceAndScopeHasAKeyOfItsOwn) {
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
    state = pair.server.Shake();
  }
  return state == Moved::kSome;
}

TEST(TlsStream, OnlyTls13WithTheKeyAndAnEphemeralExchangeIsAccepted) {
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
TEST(TlsStream, ACertificateDoesNotReplaceTheKey) {
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
    state = pair.client.Shake();
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
TEST(TlsStream, ReflectedBytesAreRefused) {
  const PresharedKey to_other = DerivePresharedKey(kTestSecret, "pages", "other");
  TlsPair pair(to_other, Key());
  pair.client.Shake();
  EXPECT_EQ(pair.server.Shake(), Moved::kFailed);
}

TEST(TlsStream, ReplayedBytesAreRefused) {
  TlsPair first(Key());
  std::string recorded;
  first.client.Shake();
  recorded += first.up.bytes;
  first.server.Shake();
  first.client.Shake();
  recorded += first.up.bytes;
  Write(&first.client, "hello");
  recorded += first.up.bytes;
  TlsPair second(Key());
  second.up.bytes = recorded;
  EXPECT_NE(second.server.Shake(), Moved::kSome);
  EXPECT_EQ(ReadAll(&second.server), "");
}

TEST(TlsStream, EveryFlippedOrMissingByteIsNoticed) {
  TlsPair clean(Key());
  clean.client.Shake();
  const size_t hello_bytes = clean.up.bytes.size();
  for (size_t i = 0; i < hello_bytes; ++i) {
    if (i == 2) continue;  // a record's minor version is ignored (RFC 8446, section 5.1)
    TlsPair pair(Key());
    pair.client.Shake();
    pair.up.bytes[i] ^= 1;
    pair.Shake();
    // The random bytes of a hello are covered by the binder.
    EXPECT_NE(pair.server.Shake(), Moved::kSome) << i;
    TlsPair cut(Key());
    cut.client.Shake();
    cut.up.bytes.resize(i);
    cut.up.is_ended = true;
    EXPECT_EQ(cut.server.Shake(), Moved::kFailed) << i;
  }
}

TEST(TlsStream, DamagedRepeatedAndCutRecordsAreNoticed) {
  for (const int fault : {0, 1, 2, 3}) {
    TlsPair pair(Key());
    ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
    Write(&pair.client, "one");
    const std::string one = pair.up.bytes;
    Write(&pair.client, "two");
    const std::string two = pair.up.bytes.substr(one.size());
    if (fault == 0) pair.up.bytes[one.size() - 1] ^= 1;
    if (fault == 1) pair.up.bytes = one + one;
    if (fault == 2) pair.up.bytes = two + one;
    if (fault == 3) pair.up.bytes.pop_back();
    pair.up.is_ended = true;
    Moved::State end = Moved::kSome;
    const std::string read = ReadAll(&pair.server, &end);
    EXPECT_EQ(read, fault == 1 || fault == 3 ? "one" : "") << fault;
    EXPECT_EQ(end, Moved::kFailed) << fault;  // an end without close_notify, too
  }
}

TEST(TlsStream, AnEndIsToldFromACut) {
  TlsPair pair(Key());
  ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
  pair.client.End();
  pair.up.is_ended = true;
  Moved::State end = Moved::kSome;
  ReadAll(&pair.server, &end);
  EXPECT_EQ(end, Moved::kEnded);
}

TEST(TlsStream, NoTicketsAreSent) {
  TlsPair pair(Key());
  ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
  EXPECT_EQ(pair.down.bytes, "");
  Write(&pair.server, "x");
  EXPECT_LT(pair.down.bytes.size(), 40u);  // one record: 5 + 1 + 1 + 16 bytes
}

TEST(TlsStream, KeysAreReplacedAndAFloodOfUpdatesIsRefused) {
  SslContext context = RogueContext(true);
  TlsPair pair(Key());
  Rogue rogue(context.get(), /*connects=*/true);
  Moved::State state = Moved::kWaits;
  for (int i = 0; i < 10 && state == Moved::kWaits; ++i) {
    SSL_do_handshake(rogue.ssl.get());
    rogue.Move(&pair.down, &pair.up);
    state = pair.server.Shake();
  }
  ASSERT_EQ(state, Moved::kSome);
  const auto update = [&](int num_records) {
    for (int i = 0; i < num_records; ++i) SSL_write(rogue.ssl.get(), "x", 1);
    SSL_key_update(rogue.ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    SSL_write(rogue.ssl.get(), "y", 1);
    rogue.Move(&pair.down, &pair.up);
    Moved::State end = Moved::kSome;
    ReadAll(&pair.server, &end);
    return end;
  };
  EXPECT_EQ(update(1000), Moved::kWaits);
  EXPECT_EQ(update(1000), Moved::kWaits);
  EXPECT_EQ(update(10), Moved::kFailed);
  EXPECT_TRUE(absl::IsPermissionDenied(pair.server.failure()));
}

TEST(TlsStream, ReplacesItsOwnKeysInTime) {
  TlsPair pair(Key());
  ASSERT_EQ(pair.Shake(), std::pair(Moved::kSome, Moved::kSome));
  int64_t num_update_bytes = 0;
  for (int64_t i = 0; i < kRecordsPerKey + 10; ++i) {
    ASSERT_EQ(pair.client.Write(AsBytes("x")).state, Moved::kSome);
    num_update_bytes += pair.up.bytes.size() > 23 ? 1 : 0;
    std::byte one[2];
    ASSERT_EQ(pair.server.Read(one).state, Moved::kSome);
  }
  EXPECT_EQ(num_update_bytes, 1);
}

}  // namespace
}  // namespace tandem
