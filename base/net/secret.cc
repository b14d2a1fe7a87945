#include "base/net/secret.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr size_t kLeastCharacters = 32;  // 128 bits as hexadecimal digits
constexpr size_t kMostCharacters = 1000;
constexpr size_t kLeastDifferent = 8;
constexpr absl::string_view kWire = "tandem/1";
constexpr absl::string_view kSalt = "tandem wire 1";  // must change with the format of frames

// Returns why a text cannot be a secret, or an empty string.
std::string WhyNoSecret(absl::string_view text) {
  if (text.size() < kLeastCharacters || text.size() > kMostCharacters) {
    return absl::StrCat("must have from ", kLeastCharacters, " to ", kMostCharacters,
                        " characters, got ", text.size());
  }
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isgraph)) {
    return "must have visible ASCII characters only";
  }
  const size_t num_different = std::set<char>(text.begin(), text.end()).size();
  if (num_different >= kLeastDifferent) return "";
  return absl::StrCat("must have at least ", kLeastDifferent, " different characters, got ",
                      num_different);
}

OSSL_PARAM Octets(const char* name, absl::string_view bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseSecrets(absl::string_view text,
                                                      absl::string_view field) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  std::vector<std::string> secrets;
  for (const std::string& line : lines) {
    secrets.emplace_back(absl::StripTrailingAsciiWhitespace(line));
    std::string why =
        secrets.size() > 2 ? "must have at most two lines" : WhyNoSecret(secrets.back());
    if (why.empty()) continue;
    return FieldError(
        field, absl::StrCat("the secret ", why, "; `openssl rand -hex 32` makes a good one"));
  }
  return secrets;
}

void DeriveKey(absl::string_view key, absl::string_view info, absl::Span<uint8_t> derived) {
  std::array<char, 7> digest = {"SHA256"};
  const std::array<OSSL_PARAM, 5> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      Octets(OSSL_KDF_PARAM_KEY, key), Octets(OSSL_KDF_PARAM_SALT, kSalt),
      Octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> hkdf(
      EVP_KDF_fetch(nullptr, "HKDF", nullptr), &EVP_KDF_free);
  TANDEM_CHECK(hkdf != nullptr);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      EVP_KDF_CTX_new(hkdf.get()), &EVP_KDF_CTX_free);
  TANDEM_CHECK(EVP_KDF_derive(context.get(), derived.data(), derived.size(), params.data()) == 1);
}

PresharedKey DerivePresharedKey(absl::string_view secret, absl::string_view service,
                                absl::string_view scope) {
  // The key, then four bytes that name it. HKDF's blocks of output tell nothing of each other.
  std::array<uint8_t, 36> derived;
  DeriveKey(secret, absl::StrCat(service, absl::string_view("\0", 1), scope),
            absl::MakeSpan(derived));
  PresharedKey key;
  std::copy_n(derived.begin(), key.key.size(), key.key.begin());
  const absl::string_view name(reinterpret_cast<const char*>(derived.data()) + key.key.size(), 4);
  key.identity = absl::StrCat(kWire, " ", service, " ", scope, " ", absl::BytesToHexString(name));
  OPENSSL_cleanse(derived.data(), derived.size());
  return key;
}

std::string NewRandomName() {
  std::array<char, 16> bytes;
  TANDEM_CHECK(getentropy(bytes.data(), bytes.size()) == 0);
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

}  // namespace tandem
