// The tests name transports that need no device for RDMA.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/instant.h"
#include "base/net/block_path.h"
#include "base/net/secret_testing.h"
#include "base/net/stream_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTestTransports = "tcp,self";
// UCX would copy blocks of every size over TCP.
const bool kUsesRendezvous = setenv("UCX_RNDV_THRESH", "8k", /*overwrite=*/0) == 0;
constexpr size_t kMegabyte = size_t{1} << 20;

std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 256);
  return text;
}

// ---- Paths alone ----

// One end, which has one link, 1, and remembers its events.
struct PathEnd final : BlockPathEvents {
  PathEnd() : path(*BlockPath::Open(kTestTransports, this)), token(path->Expect(1)) {}

  void OnPathReached(LinkId) override { is_reached = true; }
  void OnPathFailed(LinkId, const absl::Status& why) override { failures.push_back(why); }
  BlockBuffer OnPathBlock(LinkId, const BlockHeader& header, size_t size) override {
    headers.push_back(header);
    if (!wants_blocks) return nullptr;
    buffers.push_back(std::make_shared<std::vector<std::byte>>(size / 2));
    return buffers.back();
  }
  void OnPathBlockReceived(LinkId, const BlockHeader&) override { ++num_received; }
  void OnPathBlockSent(LinkId, size_t size) override { sent.push_back(size); }

  void Send(const std::shared_ptr<std::string>& block, uint64_t tag = 0) {
    path->SendBlock(1, {.tag = tag, .index = 2, .checksum = 3}, AsBytes(*block), block);
  }

  bool is_reached = false;
  bool wants_blocks = true;
  std::vector<absl::Status> failures;
  std::vector<BlockHeader> headers;
  std::vector<BlockBuffer> buffers;
  int num_received = 0;
  std::vector<size_t> sent;
  std::unique_ptr<BlockPath> path;
  uint64_t token;
};

template <typename Condition>
void ProgressUntil(const std::vector<PathEnd*>& ends, Condition condition) {
  while (!condition()) {
    for (PathEnd* end : ends) end->path->Progress();
  }
}

void Reach(PathEnd* a, PathEnd* b) {
  a->path->Reach(1, b->path->address(), b->token);
  b->path->Reach(1, a->path->address(), a->token);
  ProgressUntil({a, b}, [&] { return a->is_reached && b->is_reached; });
}

TEST(UcxPath, CarriesBlocksOfEverySizeBothWays) {
  ASSERT_TRUE(kUsesRendezvous);
  PathEnd a, b;
  Reach(&a, &b);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{70'000}, 16 * kMegabyte}) {
    for (const bool is_back : {false, true}) {
      PathEnd& from = is_back ? b : a;
      PathEnd& to = is_back ? a : b;
      const auto block = std::make_shared<std::string>(Pattern(size));
      const size_t num_sent = from.sent.size() + 1;
      const int num_received = to.num_received + 1;
      from.Send(block, size);
      ProgressUntil({&a, &b}, [&] {
        return from.sent.size() == num_sent && to.num_received == num_received;
      });
      EXPECT_TRUE(AsText(*to.buffers.back()) == *block) << size;
      EXPECT_EQ(to.headers.back().tag, size);
      EXPECT_EQ(to.headers.back().index, 2u);
      EXPECT_EQ(to.headers.back().checksum, 3u);
      EXPECT_EQ(from.sent.back(), size);
      EXPECT_EQ(block.use_count(), 1);
    }
  }
}

TEST(UcxPath, ReachesOnlyAPeerThatMakesProgress) {
  PathEnd a, b;
  a.path->Reach(1, b.path->address(), b.token);
  b.path->Reach(1, a.path->address(), a.token);
  for (int i = 0; i < 1000; ++i) a.path->Progress();
  EXPECT_FALSE(a.is_reached);
  ProgressUntil({&a, &b}, [&] { return a.is_reached && b.is_reached; });
}

TEST(UcxPath, DoesNotReachAPeerWithAnUnknownToken) {
  PathEnd a, b;
  a.path->Reach(1, b.path->address(), b.token + 1);
  b.path->Reach(1, a.path->address(), a.token);
  for (int i = 0; i < 1000; ++i) a.path->Progress(), b.path->Progress();
  EXPECT_FALSE(b.is_reached);
}

TEST(UcxPath, DropsBlocksWithAnUnknownToken) {
  PathEnd a, b;
  Reach(&a, &b);
  for (int i = 0; i < 3; ++i) a.Send(std::make_shared<std::string>("x"));
  for (int i = 0; i < 100; ++i) a.path->Progress();
  b.path->Drop(1);  // forgets its token
  for (int i = 0; i < 100; ++i) b.path->Progress();
  EXPECT_TRUE(b.headers.empty());
}

TEST(UcxPath, DropsBlocksThatAreNotWanted) {
  PathEnd a, b;
  Reach(&a, &b);
  b.wants_blocks = false;
  for (const size_t size : {size_t{1}, kMegabyte}) {
    const size_t num_sent = a.sent.size() + 1;
    a.Send(std::make_shared<std::string>(Pattern(size)));
    ProgressUntil({&a, &b},
                  [&] { return a.sent.size() == num_sent && b.headers.size() == num_sent; });
  }
  EXPECT_EQ(b.num_received, 0);
}

TEST(UcxPath, APeerThatEndsWhileBlocksAreOnTheirWayIsNoticed) {
  for (const int num_turns : {0, 1, 3, 10, 30, 100}) {
    PathEnd a;
    const auto block = std::make_shared<std::string>(Pattern(16 * kMegabyte));
    {
      PathEnd b;
      Reach(&a, &b);
      for (int i = 0; i < 4; ++i) a.Send(block), b.Send(block);
      for (int i = 0; i < num_turns; ++i) a.path->Progress(), b.path->Progress();
    }
    ProgressUntil({&a}, [&] { return !a.failures.empty(); });
    EXPECT_EQ(a.failures.size(), 1u);
    EXPECT_THAT(a.failures[0].message(), HasSubstr("UCX: "));
    a.path->Drop(1);
    ProgressUntil({&a}, [&] { return block.use_count() == 1; });
  }
}

TEST(UcxPath, PathsThatEndWhileTheyAreMadeDoNoHarm) {
  for (int num_turns = 0; num_turns < 12; ++num_turns) {
    auto a = std::make_unique<PathEnd>();
    auto b = std::make_unique<PathEnd>();
    a->path->Reach(1, b->path->address(), b->token);
    if (num_turns % 2 == 0) b->path->Reach(1, a->path->address(), a->token);
    for (int i = 0; i < num_turns; ++i) a->path->Progress(), b->path->Progress();
    if (num_turns % 3 == 0) a->path->Drop(1);
    if (num_turns % 3 == 1) b = nullptr;
    for (int i = 0; i < 10; ++i) {
      a->path->Progress();
      if (b != nullptr) b->path->Progress();
    }
  }
}

TEST(UcxPath, AMissingDeviceIsAnError) {
  PathEnd end;
  const auto path = BlockPath::Open("no_such_transport", &end);
  ASSERT_TRUE(absl::IsUnavailable(path.status())) << path.status();
  EXPECT_THAT(path.status().message(),
              HasSubstr("kv_transfer_fabric: UCX finds no device for no_such_transport: "));
}

// ---- Links with paths ----

struct LinkEnd final : LinkEvents {
  explicit LinkEnd(const std::string& fabric) {
    link = *Link::Open({.service = "test",
                        .secrets = {kTestSecret},
                        .address = *ParseAddress("127.0.0.1", 0, Names::kRefused, "address"),
                        .accepts = [](absl::string_view) { return true; },
                        .timeout = absl::Hours(1),
                        .fabric = fabric,
                        .fabric_transports = kTestTransports},
                       this);
  }

  void OnOpened(LinkId id, const std::string&, absl::string_view) override {
    peer = id;
    link->SendMessage(id, "hello");
  }
  void OnRefused(const std::string&, const absl::Status&) override {}
  void OnMessage(LinkId id, absl::Span<const std::byte>) override {
    ++num_messages;
    link->Admit(id);
  }
  BlockBuffer OnBlock(LinkId, const BlockHeader&, size_t size) override {
    return buffer = std::make_shared<std::vector<std::byte>>(size);
  }
  void OnBlockReceived(LinkId, const BlockHeader&) override { ++num_received; }
  void OnBlockSent(LinkId, size_t) override { ++num_sent; }
  void OnClosed(LinkId, const absl::Status& why, bool) override { closed.push_back(why); }

  std::unique_ptr<Link> link;
  LinkId peer = 0;
  BlockBuffer buffer;
  int num_messages = 0, num_received = 0, num_sent = 0;
  std::vector<absl::Status> closed;
};

template <typename Condition>
void ServeUntil(const std::vector<LinkEnd*>& ends, Condition condition) {
  while (!condition()) {
    bool is_busy = false;
    for (LinkEnd* end : ends) is_busy = end->link->Progress() || is_busy;
    if (!is_busy) ends[0]->link->Wait(absl::Milliseconds(1));
  }
}

void Greet(LinkEnd* a, LinkEnd* b) {
  a->link->Connect(b->link->address(), "b");
  ServeUntil({a, b}, [&] { return a->num_messages > 0 && b->num_messages > 0; });
}

bool HasPeer(int file) {
  sockaddr_in other = {};
  socklen_t size = sizeof(other);
  return getpeername(file, reinterpret_cast<sockaddr*>(&other), &size) == 0 &&
         other.sin_family == AF_INET;
}

// Whether a connection is from or to a port.
bool IsAt(int file, int port) {
  sockaddr_in own = {}, other = {};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  getsockname(file, reinterpret_cast<sockaddr*>(&own), &own_size);
  getpeername(file, reinterpret_cast<sockaddr*>(&other), &other_size);
  return ntohs(own.sin_port) == port || ntohs(other.sin_port) == port;
}

// Returns the bytes that this process has sent from and to a port of TCP.
uint64_t BytesOf(int port) {
  uint64_t bytes = 0;
  for (int file = 0; file < 1000; ++file) {
    if (!HasPeer(file) || !IsAt(file, port)) continue;
    // The struct tcp_info of glibc ends before this member of linux/tcp.h's.
    constexpr size_t kBytesAcked = 120;
    std::array<std::byte, 256> info = {};
    socklen_t size = info.size();
    uint64_t acked = 0;
    if (getsockopt(file, IPPROTO_TCP, TCP_INFO, info.data(), &size) == 0) {
      std::memcpy(&acked, info.data() + kBytesAcked, sizeof(acked));
    }
    bytes += acked;
  }
  return bytes;
}

// Sends a block of 16 MB each way. Returns the bytes on the connection.
uint64_t ExchangeBlocks(LinkEnd* a, LinkEnd* b) {
  const uint64_t before = BytesOf(b->link->address().port());
  const auto block = std::make_shared<std::string>(Pattern(16 * kMegabyte));
  a->link->SendBlock(a->peer, {}, AsBytes(*block), block);
  b->link->SendBlock(b->peer, {}, AsBytes(*block), block);
  const int num_a = a->num_received, num_b = b->num_received;
  ServeUntil({a, b}, [&] {
    return a->num_received > num_a && b->num_received > num_b && block.use_count() == 1;
  });
  EXPECT_TRUE(AsText(*a->buffer) == *block);
  EXPECT_TRUE(AsText(*b->buffer) == *block);
  EXPECT_TRUE(a->closed.empty() && b->closed.empty());
  return BytesOf(b->link->address().port()) - before;
}

// Exchanges blocks until frames do not carry them any more.
bool UsePath(LinkEnd* a, LinkEnd* b) {
  for (int i = 0; i < 100; ++i) {
    if (ExchangeBlocks(a, b) < kMegabyte) return true;
  }
  return false;
}

TEST(LinkWithUcx, SendsBlocksOverThePathOfBoth) {
  LinkEnd a("ucx"), b("ucx");
  Greet(&a, &b);
  EXPECT_TRUE(UsePath(&a, &b));
}

TEST(LinkWithUcx, SendsFramesToAPeerWithoutThePath) {
  for (const bool is_listener : {false, true}) {
    LinkEnd a(is_listener ? "tcp" : "ucx"), b(is_listener ? "ucx" : "tcp");
    Greet(&a, &b);
    for (int i = 0; i < 3; ++i) EXPECT_GT(ExchangeBlocks(&a, &b), 32 * kMegabyte);
  }
}

TEST(LinkWithUcx, APeerThatEndsDoesNotEndThePathOfOthers) {
  LinkEnd a("ucx");
  {
    LinkEnd b("ucx");
    Greet(&a, &b);
    EXPECT_TRUE(UsePath(&a, &b));
    const auto block = std::make_shared<std::string>(Pattern(16 * kMegabyte));
    for (int i = 0; i < 4; ++i) {
      a.link->SendBlock(a.peer, {}, AsBytes(*block), block);
      b.link->SendBlock(b.peer, {}, AsBytes(*block), block);
    }
    for (int i = 0; i < 10; ++i) a.link->Progress(), b.link->Progress();
  }
  ServeUntil({&a}, [&] { return !a.closed.empty(); });
  EXPECT_EQ(a.closed[0], absl::UnavailableError("it has closed the connection"));
  a.closed.clear();
  a.num_messages = 0;
  LinkEnd c("ucx");
  Greet(&a, &c);
  EXPECT_TRUE(UsePath(&a, &c));
}

// Breaks the connections of this process, UCX's, that are neither from nor to a port.
void BreakOtherConnections(int port) {
  for (int file = 0; file < 1000; ++file) {
    if (HasPeer(file) && !IsAt(file, port)) shutdown(file, SHUT_RDWR);
  }
}

TEST(LinkWithUcx, APathThatFailsClosesTheConnectionAndIsNotUsedAgain) {
  LinkEnd a("ucx"), b("ucx");
  Greet(&a, &b);
  ASSERT_TRUE(UsePath(&a, &b));
  BreakOtherConnections(b.link->address().port());
  const auto block = std::make_shared<std::string>(Pattern(16 * kMegabyte));
  a.link->SendBlock(a.peer, {}, AsBytes(*block), block);
  ServeUntil({&a, &b}, [&] { return !a.closed.empty() && !b.closed.empty(); });
  EXPECT_EQ(b.num_received, a.num_received);  // those of UsePath
  a.closed.clear(), b.closed.clear();
  a.num_messages = b.num_messages = 0;
  Greet(&a, &b);
  for (int i = 0; i < 3; ++i) EXPECT_GT(ExchangeBlocks(&a, &b), 32 * kMegabyte);
  EXPECT_EQ(block.use_count(), 1);
}

TEST(LinkWithUcx, WaitWakesForABlock) {
  LinkEnd a("ucx"), b("ucx");
  Greet(&a, &b);
  ASSERT_TRUE(UsePath(&a, &b));
  const auto block = std::make_shared<std::string>(Pattern(100));
  constexpr int kNumBlocks = 20;
  int num_fast = 0;
  for (int i = 0; i < kNumBlocks; ++i) {
    b.num_received = 0;
    a.link->SendBlock(a.peer, {}, AsBytes(*block), block);
    for (int j = 0; j < 10; ++j) a.link->Progress();
    const Instant start = Instant::Now();
    while (b.num_received == 0) {
      if (!b.link->Progress()) b.link->Wait(absl::Minutes(1));
    }
    // Without an event Wait takes 200 ms.
    num_fast += Instant::Now() - start < absl::Milliseconds(100);
  }
  EXPECT_GT(num_fast, kNumBlocks / 2);
}

TEST(LinkWithUcx, AMissingDeviceOfRdmaIsAnError) {
  LinkEnd end("tcp");
  LinkOptions options;
  options.fabric = "ucx";
  const absl::Status status = Link::Open(options, &end).status();
  if (status.ok()) GTEST_SKIP() << "this machine has RDMA";
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("kv_transfer_fabric: UCX finds no device for rc,ud: "));
}

}  // namespace
}  // namespace tandem
