#include "kvtransfer/handshake.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvtransfer/transfer_testing.h"

namespace tandem {
namespace {

Handshake::Self Worker(const std::string& engine_id, const std::string& secret = "secret") {
  return {.hello = {.engine_id = engine_id, .pools = {TestPool("target")}}, .secret = secret};
}

struct Pair {
  Handshake::Self a = Worker("a");
  Handshake::Self b = Worker("b");
  Handshake connecting{a, "b"};
  Handshake accepting{b, ""};
};

TEST(Handshake, AuthenticatesBothSides) {
  Pair pair;
  const auto hello = pair.accepting.Take(pair.connecting.hello());
  const auto proof = pair.connecting.Take(**hello);
  ASSERT_TRUE(proof.ok());
  EXPECT_FALSE(pair.connecting.is_done());
  EXPECT_FALSE(pair.accepting.is_done());
  const auto other_proof = pair.accepting.Take(**proof);
  ASSERT_TRUE(other_proof.ok());
  EXPECT_TRUE(pair.accepting.is_done());
  const auto nothing = pair.connecting.Take(**other_proof);
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->has_value());
  EXPECT_TRUE(pair.connecting.is_done());
  EXPECT_EQ(pair.connecting.peer().engine_id, "b");
  EXPECT_EQ(pair.accepting.peer().engine_id, "a");
  EXPECT_TRUE(pair.connecting.Shares(TestPool("target")));
  EXPECT_FALSE(pair.connecting.Shares(TestPool("draft")));
}

TEST(Handshake, SendsNoProofToAStranger) {
  Pair pair;
  // Before it proves anything, a peer gets only a hello, which does not depend on the secret.
  EXPECT_TRUE(std::holds_alternative<Hello>(**pair.accepting.Take(pair.connecting.hello())));
  const auto answer = pair.accepting.Take(SecretProof{});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(pair.accepting.is_done());
}

// An eavesdropper can neither replay a proof nor reflect it.
TEST(Handshake, RefusesReplayedAndReflectedProofs) {
  Pair first;
  const auto proof = *first.connecting.Take(**first.accepting.Take(first.connecting.hello()));
  Handshake later(first.b, "");
  ASSERT_TRUE(later.Take(first.connecting.hello()).ok());
  EXPECT_FALSE(later.Take(*proof).ok());
  ASSERT_TRUE(first.accepting.Take(*proof).ok());
  EXPECT_FALSE(first.connecting.Take(*proof).ok());
}

TEST(Handshake, RefusesMessagesOutOfOrder) {
  for (const WireMessage& message :
       {WireMessage(Coming{}), WireMessage(SecretProof{}), WireMessage(Release{"a"})}) {
    Pair pair;
    EXPECT_FALSE(pair.accepting.Take(message).ok());
    EXPECT_FALSE(pair.connecting.Take(message).ok());
  }
  Pair pair;
  ASSERT_TRUE(pair.accepting.Take(pair.connecting.hello()).ok());
  EXPECT_FALSE(pair.accepting.Take(pair.connecting.hello()).ok());
}

TEST(Handshake, ProofCoversBothHellos) {
  Pair pair;
  auto hello = **pair.accepting.Take(pair.connecting.hello());
  // A man in the middle redirects the pages.
  std::get<Hello>(hello).page_address = "elsewhere";
  const auto proof = *pair.connecting.Take(hello);
  EXPECT_FALSE(pair.accepting.Take(*proof).ok());
}

TEST(Handshake, SaysWhyItRefuses) {
  const auto refusal = [](Handshake::Self a, Handshake::Self b, const std::string& engine) {
    Handshake connecting(a, engine), accepting(b, "");
    const auto hello = accepting.Take(connecting.hello());
    if (!hello.ok()) return std::string(hello.status().message());
    const auto proof = connecting.Take(**hello);
    if (!proof.ok()) return std::string(proof.status().message());
    return std::string(accepting.Take(**proof).status().message());
  };
  EXPECT_EQ(refusal(Worker("a"), Worker("b"), "b"), "");
  EXPECT_EQ(refusal(Worker("a", ""), Worker("b"), "b"), "its secret differs from ours");
  EXPECT_EQ(refusal(Worker("a"), Worker("b"), "c"), "it is the engine b, not c");
  Handshake::Self other = Worker("a");
  other.hello.version = kWireVersion + 1;
  EXPECT_EQ(refusal(other, Worker("b"), "b"),
            absl::StrCat("its wire version is ", kWireVersion + 1, ", ours is ", kWireVersion));
  other = Worker("a");
  other.hello.pools = {TestPool("draft")};
  EXPECT_NE(refusal(other, Worker("b"), "b").find("no pool is common"), std::string::npos);
}

}  // namespace
}  // namespace tandem
