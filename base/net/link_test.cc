#include "base/net/link.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/net/attack_testing.h"
#include "base/net/secret_testing.h"
#include "base/net/stream_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

Address Loopback(int port = 0) {
  return *ParseAddress("127.0.0.1", port, Names::kRefused, "address");
}

// One side, which remembers its events. It admits each peer that says "hello".
struct Side final : LinkEvents {
  explicit Side(const std::string& scope, const std::string& secret = kTestSecret) {
    link = *Link::Open({.service = "test",
                        .secrets = {secret},
                        .address = Loopback(),
                        .accepts = [scope](absl::string_view asked) { return asked == scope; },
                        .timeout = absl::Seconds(5)},
                       this);
  }

  void OnOpened(LinkId id, const std::string&, absl::string_view scope) override {
    opened.push_back(id);
    scopes.emplace_back(scope);
    if (greets) link->SendMessage(id, "hello");
  }
  void OnRefused(const std::string&, const absl::Status& why) override {
    refused.emplace_back(why.message());
  }
  void OnMessage(LinkId id, absl::Span<const std::byte> bytes) override {
    messages.push_back(AsText(bytes));
    if (messages.back() == "hello") link->Admit(id);
  }
  BlockBuffer OnBlock(LinkId, const BlockHeader&, size_t size) override {
    block = std::make_shared<std::vector<std::byte>>(size);
    return block;
  }
  void OnBlockReceived(LinkId, const BlockHeader&) override { ++num_blocks; }
  void OnBlockSent(LinkId, size_t) override { ++num_sent; }
  void OnClosed(LinkId, const absl::Status& why, bool is_peers) override {
    closed.push_back(why);
    was_peers = is_peers;
  }

  std::unique_ptr<Link> link;
  bool greets = true;
  std::vector<LinkId> opened;
  std::vector<std::string> scopes, refused, messages;
  std::vector<absl::Status> closed;
  bool was_peers = false;
  BlockBuffer block;
  int num_blocks = 0, num_sent = 0;
};

// Lets both sides make progress until a condition holds. Returns false after many turns.
template <typename Condition>
bool RunUntil(std::vector<Side*> sides, Condition condition) {
  for (int i = 0; i < 20'000; ++i) {
    bool is_busy = false;
    for (Side* side : sides) is_busy = side->link->Progress() || is_busy;
    if (condition()) return true;
    if (!is_busy) sides[0]->link->Wait(absl::Milliseconds(1));
  }
  return false;
}

// Connects `a` to `b` and greets.
LinkId Join(Side* a, Side* b) {
  const size_t num_a = a->messages.size(), num_b = b->messages.size();
  const LinkId link = a->link->Connect(b->link->address(), "b");
  EXPECT_TRUE(
      RunUntil({a, b}, [&] { return a->messages.size() > num_a && b->messages.size() > num_b; }));
  return link;
}

int NumDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// A stranger's connection.
struct Stranger {
  explicit Stranger(const Address& address) {
    EXPECT_EQ(connect(file, address.data(), address.size()), 0);
  }
  ~Stranger() {
    if (file >= 0) close(file);
  }
  Stranger(Stranger&& other) noexcept : file(std::exchange(other.file, -1)) {}
  void Send(absl::string_view bytes) {
    send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Returns what has come, up to the end of the connection.
  std::string Receive(Side* side) {
    std::string text;
    for (int i = 0; i < 20'000; ++i) {
      side->link->Progress();
      char bytes[1000];
      const ssize_t size = recv(file, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno != EAGAIN)) return text;
      if (size > 0) text.append(bytes, size);
    }
    return text + " (not closed)";
  }
  int file = socket(AF_INET, SOCK_STREAM, 0);
};

TEST(Link, CarriesMessagesAndBlocks) {
  Side a("a"), b("b");
  const LinkId link = Join(&a, &b);
  EXPECT_EQ(b.scopes, std::vector<std::string>{"b"});
  const auto block = std::make_shared<std::string>(3'000'000, 'x');
  a.link->SendBlock(link, {.tag = 1}, AsBytes(*block), block);
  a.link->SendMessage(link, "first");
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return b.num_blocks == 1; }));
  EXPECT_EQ(AsText(*b.block), *block);
  EXPECT_EQ(b.messages, (std::vector<std::string>{"hello", "first"}));
  EXPECT_EQ(a.num_sent, 1);
  EXPECT_EQ(block.use_count(), 1);
}

TEST(Link, TellsWhyItCloses) {
  Side a("a"), b("b");
  const LinkId link = Join(&a, &b);
  a.link->Close(link, absl::ResourceExhaustedError("too much"));
  EXPECT_TRUE(a.link->is_closing());
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return !b.closed.empty() && !a.link->is_closing(); }));
  EXPECT_EQ(b.closed[0], absl::ResourceExhaustedError("too much"));
  EXPECT_TRUE(b.was_peers);
  EXPECT_TRUE(a.closed.empty());
}

// The thread of a link asks for news, makes progress and waits: a Wake in between must not be lost.
TEST(Link, AWakeIsSeenByProgressOrByWait) {
  Side a("a");
  a.link->Progress();
  EXPECT_FALSE(a.link->Progress());
  a.link->Wake();
  EXPECT_TRUE(a.link->Progress());
  a.link->Wake();
  a.link->Wait(absl::InfiniteDuration());
}

TEST(Link, APeerThatEndsIsNoticed) {
  Side a("a");
  auto b = std::make_unique<Side>("b");
  Join(&a, b.get());
  b = nullptr;
  ASSERT_TRUE(RunUntil({&a}, [&] { return !a.closed.empty(); }));
  EXPECT_FALSE(a.was_peers);
}

TEST(Link, AnotherSecretScopeOrServiceIsRefusedOnBothSides) {
  Side b("b");
  Side other("a", kOtherSecret);
  other.link->Connect(b.link->address(), "b");
  ASSERT_TRUE(RunUntil({&other, &b}, [&] { return !other.closed.empty() && !b.refused.empty(); }));
  EXPECT_EQ(other.closed[0], absl::PermissionDeniedError("its secret differs from ours"));
  EXPECT_EQ(b.refused[0], "its secret differs from ours");
  Side a("a");
  a.link->Connect(b.link->address(), "c");
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return !a.closed.empty(); }));
  EXPECT_TRUE(absl::IsPermissionDenied(a.closed[0]));
  // A side does not accept itself under another name.
  b.link->Connect(b.link->address(), "a");
  ASSERT_TRUE(RunUntil({&b}, [&] { return !b.closed.empty(); }));
  EXPECT_TRUE(b.opened.empty());
}

TEST(Link, APortWithoutAListenerCannotBeReached) {
  Side a("a");
  Address nowhere;
  {
    const Side gone("b");
    nowhere = gone.link->address();
  }
  a.link->Connect(nowhere, "b");
  ASSERT_TRUE(RunUntil({&a}, [&] { return !a.closed.empty(); }));
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it cannot be reached: Connection refused"));
}

// ---- Strangers ----

TEST(Link, StrangersDoNoHarmAndTakeNothing) {
  Side a("a"), b("b");
  Join(&a, &b);
  const int num_descriptors = NumDescriptors();
  for (const std::string& attack : Attacks()) {
    for (const bool leaves : {false, true}) {
      Stranger stranger(b.link->address());
      stranger.Send(attack);
      if (leaves) shutdown(stranger.file, SHUT_WR);
      for (int i = 0; i < 20; ++i) b.link->Progress(), a.link->Progress();
    }
  }
  // Those that have sent nothing, or nothing wrong, are closed by their deadline or by leaving.
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return NumDescriptors() <= num_descriptors; }));
  EXPECT_TRUE(a.closed.empty());
  EXPECT_TRUE(b.closed.empty());
  EXPECT_EQ(b.opened.size(), 1u);
  a.link->SendMessage(1, "still here");
  EXPECT_TRUE(RunUntil({&a, &b}, [&] { return b.messages.back() == "still here"; }));
}

TEST(Link, SilentStrangersDoNotKeepOthersOut) {
  Side a("a"), b("b");
  const int num_descriptors = NumDescriptors();
  std::deque<Stranger> strangers;
  for (int i = 0; i < 2000; ++i) {
    strangers.emplace_back(b.link->address());
    b.link->Progress();
    // From one address, eight wait at most.
    const auto num_own = static_cast<int>(strangers.size() + 2 * b.opened.size());
    ASSERT_LE(NumDescriptors() - num_descriptors, num_own + 8);
    if (i % 500 == 499) Join(&a, &b);
    if (strangers.size() == 200) strangers.pop_front();
  }
  EXPECT_EQ(b.opened.size(), 4u);
  strangers.clear();
  EXPECT_TRUE(b.closed.empty());
}

TEST(Link, AnOlderVersionIsToldWhyItIsRefused) {
  Side b("b");
  Stranger stranger(b.link->address());
  const std::string hello("\x97\x00\xactandem pages\x01", 16);
  stranger.Send(std::string("\x10\0\0\0", 4) + hello);
  const std::string answer = stranger.Receive(&b);
  // A length, and MessagePack's [2, text].
  ASSERT_GT(answer.size(), 8u);
  EXPECT_EQ(static_cast<size_t>(answer[0]), answer.size() - 4);
  EXPECT_EQ(answer.substr(4, 3), "\x92\x02\xd9");
  EXPECT_EQ(static_cast<size_t>(answer[7]), answer.size() - 8);
  EXPECT_THAT(answer, HasSubstr("wire version 2"));
  EXPECT_THAT(b.refused.at(0), HasSubstr("older version"));
}

// ---- Deadlines ----

TEST(Link, AHandshakeThatIsNotCompletedEnds) {
  FakeClock clock;
  Side a("a"), b("b");
  Stranger stranger(b.link->address());
  stranger.Send("\x16\x03\x01");
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Address silent = Loopback();
  ASSERT_EQ(bind(listener, silent.data(), silent.size()), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = silent.capacity();
  getsockname(listener, silent.data(), &size);
  a.link->Connect(silent, "b");
  for (int i = 0; i < 50; ++i) a.link->Progress(), b.link->Progress();
  EXPECT_TRUE(a.closed.empty());
  clock.Advance(absl::Seconds(5) + absl::Milliseconds(1));
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return !a.closed.empty() && !b.refused.empty(); }));
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it did not complete the handshake for 5s"));
  EXPECT_EQ(b.refused[0], "it did not complete the handshake for 5s");
  close(listener);
}

TEST(Link, APeerThatDoesNotGreetEnds) {
  FakeClock clock;
  Side a("a"), b("b");
  b.greets = false;
  a.link->Connect(b.link->address(), "b");
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return !a.opened.empty() && !b.messages.empty(); }));
  clock.Advance(absl::Seconds(5) + absl::Milliseconds(1));
  ASSERT_TRUE(RunUntil({&a}, [&] { return !a.closed.empty(); }));
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it sent no greeting for 5s"));
}

TEST(Link, AStoppedPeerIsGivenUpAndABusyOneIsNot) {
  FakeClock clock;
  Side a("a"), b("b");
  Join(&a, &b);
  // Only the links make progress, whatever their users do.
  for (int i = 0; i < 60; ++i) {
    clock.Advance(absl::Milliseconds(500));
    for (int j = 0; j < 5; ++j) a.link->Progress(), b.link->Progress();
  }
  EXPECT_TRUE(a.closed.empty());
  int num_ticks = 0;
  while (a.closed.empty() && num_ticks < 1000) {
    clock.Advance(absl::Milliseconds(200));
    a.link->Progress();
    ++num_ticks;
  }
  ASSERT_FALSE(a.closed.empty());
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it has been silent for 5s"));
  EXPECT_LE(num_ticks, 30);
}

TEST(Link, AProcessThatWasStoppedKeepsItsPeers) {
  FakeClock clock;
  Side a("a"), b("b");
  Join(&a, &b);
  clock.Advance(absl::Hours(1));
  for (int i = 0; i < 20; ++i) {
    clock.Advance(absl::Milliseconds(200));
    for (int j = 0; j < 5; ++j) a.link->Progress(), b.link->Progress();
  }
  EXPECT_TRUE(a.closed.empty());
  EXPECT_TRUE(b.closed.empty());
}

TEST(Link, APeerThatNeverReadsIsGivenUp) {
  FakeClock clock;
  Side a("a"), b("b");
  const LinkId link = Join(&a, &b);
  const auto block = std::make_shared<std::string>(64 << 20, 'x');
  a.link->SendBlock(link, {}, AsBytes(*block), block);
  for (int i = 0; i < 200; ++i) a.link->Progress();
  EXPECT_EQ(a.num_sent, 0);
  clock.Advance(absl::Seconds(6));
  ASSERT_TRUE(RunUntil({&a}, [&] { return !a.closed.empty(); }));
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it accepted nothing for 5s"));
  EXPECT_EQ(block.use_count(), 1);
}

}  // namespace
}  // namespace tandem
