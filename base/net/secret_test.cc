#include "base/net/secret.h"

#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

constexpr char kFirst[] = "0123456789abcdef0123456789abcdef";
constexpr char kSecond[] = "fedcba9876543210fedcba9876543210";

std::string HexOf(const PresharedKey& key) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.key.data()), key.key.size()});
}

TEST(Secrets, AreOneLineOrTwo) {
  EXPECT_THAT(ParseSecrets(absl::StrCat(kFirst, "\r\n"), "f").value(), ElementsAre(kFirst));
  EXPECT_THAT(ParseSecrets(absl::StrCat(kFirst, "\r\n", kSecond, "\n\n"), "f").value(),
              ElementsAre(kFirst, kSecond));
  EXPECT_TRUE(ParseSecrets(absl::StrCat(std::string(968, 'x'), kFirst), "f").ok());
}

TEST(Secrets, NameTheRuleAndNeverTheSecret) {
  const std::string first = kFirst;
  for (const auto& [text, rule] :
       {std::pair(std::string(), "must have from 32 to 1000 characters, got 0"),
        std::pair(std::string("hunter2"), "must have from 32 to 1000 characters, got 7"),
        std::pair(first.substr(1), "must have from 32 to 1000 characters, got 31"),
        std::pair(std::string(969, 'x') + first, "must have from 32 to 1000 characters, got 1001"),
        std::pair(first + " " + first, "must have visible ASCII characters only"),
        std::pair(first + "\xc3\xa4", "must have visible ASCII characters only"),
        std::pair(std::string(64, 'a'), "must have at least 8 different characters, got 1"),
        std::pair(first + "\nshort", "must have from 32 to 1000 characters, got 5"),
        std::pair(first + "\n\n" + first, "must have from 32 to 1000 characters, got 0"),
        std::pair(first + "\n" + kSecond + "\n" + first, "must have at most two lines")}) {
    const std::string message(ParseSecrets(text, "f").status().message());
    EXPECT_EQ(message,
              absl::StrCat("f: the secret ", rule, "; `openssl rand -hex 32` makes a good one"));
  }
}

// The expected bytes are from RFC 5869's definition, computed with Python's hmac.
TEST(PresharedKeys, AreDerivedByHkdf) {
  const PresharedKey key = DerivePresharedKey(kFirst, "pages", "engine");
  EXPECT_EQ(HexOf(key), "a6753b1754c16886cd02187b8bd0b75ab78a06d52efe76f361dcfa76ef4eb011");
  EXPECT_EQ(key.identity, "tandem/1 pages engine 2c6371aa");
  EXPECT_TRUE(absl::StartsWith(key.identity, "tandem/1 pages engine "));
}

TEST(PresharedKeys, DifferInSecretServiceAndScope) {
  std::set<std::string> keys, identities;
  for (const char* secret : {kFirst, kSecond}) {
    for (const char* service : {"pages", "ranks", "pagesa"}) {
      for (const char* scope : {"a", "b", "aa"}) {
        const PresharedKey key = DerivePresharedKey(secret, service, scope);
        keys.insert(HexOf(key));
        identities.insert(key.identity);
      }
    }
  }
  EXPECT_EQ(keys.size(), 18u);
  EXPECT_EQ(identities.size(), 18u);
}

TEST(RandomNames, AreDifferent) {
  const std::string one = NewRandomName();
  EXPECT_THAT(one, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(one.size(), 32u);
  EXPECT_NE(one, NewRandomName());
}

}  // namespace
}  // namespace tandem
