#include "model/ranks/linked_ranks.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/address.h"
#include "base/net/host_and_port.h"
#include "base/net/secret_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "model/ranks/linked_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Groups = std::vector<std::unique_ptr<RankGroup>>;

std::unique_ptr<Backend> SmallBackend() {
  return *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kAuto, .isa = ""});
}

absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
std::string AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Limits that never expire, so that a busy machine is not taken for a silent rank.
LinkedRankOptions Patient(int world) {
  return {
      .world = world, .secret = kTestSecret, .silence = absl::Hours(1), .patience = absl::Hours(1)};
}

Groups Join(const LinkedRankOptions& options) {
  auto groups = JoinLoopback(options);
  EXPECT_TRUE(groups.ok()) << groups.status();
  return groups.ok() ? *std::move(groups) : Groups();
}

// Runs `body` for every rank, each on its own thread.
template <typename Body>
void OnEach(const Groups& groups, Body body) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) threads.emplace_back([&] { body(group.get()); });
  for (std::thread& thread : threads) thread.join();
}

void GatherNothing(RankGroup* group) {
  group->AllGather([](int, RankGroup::UsePiece) {});
}

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

// ---- What travels ----

// In every round rank r sends r + 1 pieces of `size` bytes each. Their contents differ from round
// to round.
void GatherRounds(RankGroup* group, Backend* backend, size_t size, int num_rounds) {
  const int world = group->world();
  const int num_pieces = world * (world + 1) / 2;
  const Buffer buffer = *group->Memory(3, num_pieces * size, backend);
  auto* const data = static_cast<uint8_t*>(buffer.data());
  const auto for_each = [&](int rank, RankGroup::UsePiece use) {
    const int first = rank * (rank + 1) / 2;
    for (int i = 0; i <= rank; ++i) use(data + (first + i) * size, size);
  };
  const auto byte_of = [](int rank, int round) { return static_cast<uint8_t>(rank * 59 + round); };
  for (int round = 0; round < num_rounds; ++round) {
    for_each(group->rank(), [&](void* piece, size_t bytes) {
      std::memset(piece, byte_of(group->rank(), round), bytes);
    });
    group->AllGather(for_each);
    ASSERT_TRUE(group->status().ok()) << group->status();
    for (int rank = 0; rank < world; ++rank) {
      for_each(rank, [&](void* piece, size_t bytes) {
        const auto* const at = static_cast<const uint8_t*>(piece);
        ASSERT_EQ(std::count(at, at + bytes, byte_of(rank, round)), bytes) << rank << " " << round;
      });
    }
  }
}

TEST(LinkedRanks, GatherWhatEachHasWritten) {
  const auto backend = SmallBackend();
  for (const int world : {1, 2, 3, 4}) {
    const Groups groups = Join(Patient(world));
    ASSERT_EQ(groups.size(), world);
    OnEach(groups, [&](RankGroup* group) {
      GatherRounds(group, backend.get(), 64, 100);
      GatherRounds(group, backend.get(), 100'000, 5);
      GatherRounds(group, backend.get(), 5'000'000, 2);
    });
  }
}

TEST(LinkedRanks, ExchangeWords) {
  const Groups groups = Join(Patient(3));
  OnEach(groups, [&](RankGroup* group) {
    EXPECT_THAT(*group->Exchange(absl::StrCat("rank ", group->rank())),
                ElementsAre("rank 0", "rank 1", "rank 2"));
    EXPECT_THAT(*group->Exchange(group->rank() == 1 ? "" : "x"), ElementsAre("x", "", "x"));
    const std::string longest(RankGroup::kMaxWords, 'a');
    EXPECT_THAT(*group->Exchange(longest), ElementsAre(longest, longest, longest));
  });
}

// Sends more messages than can wait in a queue.
TEST(LinkedRanks, FollowTheMessagesOfRankZeroUntilItEnds) {
  constexpr int kNumMessages = 200;
  Groups groups = Join(Patient(3));
  OnEach(groups, [&](RankGroup* group) {
    for (int i = 0; i < kNumMessages; ++i) {
      const std::string text(i * i, static_cast<char>('a' + i % 26));
      if (group->rank() == 0) {
        ASSERT_TRUE(group->Send(AsBytes(text)).ok());
      } else {
        const auto message = group->Receive();
        ASSERT_TRUE(message.ok()) << message.status();
        ASSERT_EQ(AsText(*message), text);
      }
    }
    GatherNothing(group);
    if (group->rank() != 0) {
      EXPECT_FALSE(group->Receive().ok());
      EXPECT_TRUE(group->is_over());
      EXPECT_EQ(TextOf(group->status()), "tensor_parallel: rank 0 has ended");
    } else {
      group->Fail(absl::CancelledError("tensor_parallel: rank 0 has ended"));
    }
  });
}

TEST(LinkedRanks, TheEndOfRankZeroEndsTheGroup) {
  std::atomic<int> num_failures{0};
  LinkedRankOptions options = Patient(3);
  options.on_failure = [&](const absl::Status&) { ++num_failures; };
  Groups groups = Join(options);
  std::thread ends([&] { groups[0] = nullptr; });
  for (const int r : {1, 2}) {
    EXPECT_FALSE(groups[r]->Receive().ok());
    EXPECT_TRUE(groups[r]->is_over()) << groups[r]->status();
  }
  ends.join();
  groups.clear();
  EXPECT_EQ(num_failures, 0);
}

TEST(LinkedRanks, AMessageThatIsTooLongIsRefused) {
  const Groups groups = Join(Patient(2));
  const std::vector<std::byte> message((size_t{64} << 20) + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(groups[0]->Send(message)));
  EXPECT_TRUE(groups[0]->status().ok());
}

TEST(LinkedRanks, MemoryKeepsContentsAndPlaceAsItGrows) {
  const Groups groups = Join(Patient(1));
  const auto backend = SmallBackend();
  const Buffer small = *groups[0]->Memory(2, 10, backend.get());
  std::memset(small.data(), 7, 10);
  const Buffer large = *groups[0]->Memory(2, 100 << 20, backend.get());
  EXPECT_EQ(large.data(), small.data());
  EXPECT_EQ(static_cast<const uint8_t*>(large.data())[9], 7);
  EXPECT_NE(groups[0]->Memory(1, 10, backend.get())->data(), small.data());
  EXPECT_TRUE(
      absl::IsResourceExhausted(groups[0]->Memory(2, size_t{5} << 30, backend.get()).status()));
}

TEST(LinkedRanks, EachRankFillsItsOwnMemory) {
  const Groups groups = Join(Patient(2));
  int num_fills = 0;
  for (const auto& group : groups) group->FillReplicated([&] { ++num_fills; });
  EXPECT_EQ(num_fills, 2);
}

// ---- Failures ----

TEST(LinkedRanks, AFailureEndsEveryCall) {
  std::atomic<int> num_failures{0};
  LinkedRankOptions options = Patient(4);
  options.on_failure = [&](const absl::Status& why) {
    EXPECT_THAT(TextOf(why), HasSubstr("it went wrong"));
    ++num_failures;
  };
  const Groups groups = Join(options);
  OnEach(groups, [](RankGroup* group) {
    if (group->rank() == 2) {
      group->Fail(absl::InternalError("it went wrong"));
      group->Fail(absl::InternalError("a later reason"));
    }
    GatherNothing(group);
    EXPECT_EQ(group->status(), absl::InternalError("it went wrong"));
    EXPECT_FALSE(group->is_over());
    EXPECT_FALSE(group->Exchange("").ok());
  });
  while (num_failures < 4) std::this_thread::yield();
}

TEST(LinkedRanks, PiecesOfAnotherSizeEndTheGroup) {
  const Groups groups = Join(Patient(2));
  OnEach(groups, [](RankGroup* group) {
    int numbers[2] = {};
    const size_t size = group->rank() == 0 ? 4 : 3;
    group->AllGather([&](int rank, RankGroup::UsePiece use) { use(numbers + rank, size); });
    if (group->status().ok()) GatherNothing(group);
    EXPECT_THAT(TextOf(group->status()), testing::ContainsRegex("rank . sent . bytes in step 0"));
  });
}

TEST(LinkedRanks, ARankThatEndsEndsTheGroup) {
  Groups groups = Join(Patient(3));
  groups[1] = nullptr;
  for (const int r : {0, 2}) {
    GatherNothing(groups[r].get());
    EXPECT_EQ(TextOf(groups[r]->status()), "tensor_parallel: rank 1 has ended");
  }
}

// Rank 1 in another process, which gathers once and then raises the signal `then`. The constructor
// returns after that gathering, with rank 0's side in `group`.
struct OtherProcess {
  pid_t id = 0;
  std::unique_ptr<RankGroup> group;

  OtherProcess(LinkedRankOptions options, int then) {
    int words[2];
    EXPECT_EQ(pipe(words), 0);
    id = fork();
    if (id == 0) {
      std::string address(100, '\0');
      address.resize(std::max<ssize_t>(0, read(words[0], address.data(), address.size())));
      options.rank = 1;
      options.rendezvous = address;
      const auto joined = JoinLinkedRanks(options);
      if (!joined.ok()) _exit(1);
      GatherNothing(joined->get());
      raise(then);
      _exit(0);
    }
    WaitingRankZero zero(options);
    EXPECT_EQ(write(words[1], zero.address().data(), zero.address().size()),
              static_cast<ssize_t>(zero.address().size()));
    JoinedRank joined = zero.Join();
    EXPECT_TRUE(joined.ok()) << joined.status();
    group = *std::move(joined);
    GatherNothing(group.get());
    close(words[0]);
    close(words[1]);
  }
  ~OtherProcess() {
    group = nullptr;
    kill(id, SIGKILL);
    waitpid(id, nullptr, 0);
  }
};

TEST(LinkedRanks, ARankThatIsKilledIsLost) {
  const OtherProcess other(Patient(2), SIGKILL);
  GatherNothing(other.group.get());
  EXPECT_THAT(TextOf(other.group->status()),
              StartsWith("tensor_parallel: lost rank 1 at 127.0.0.1:"));
}

TEST(LinkedRanks, ARankThatHangsIsGivenUp) {
  LinkedRankOptions options = Patient(2);
  options.silence = absl::Milliseconds(500);
  const OtherProcess other(options, SIGSTOP);
  GatherNothing(other.group.get());
  EXPECT_THAT(TextOf(other.group->status()), HasSubstr("it has been silent for 500ms"));
}

// ---- Which ranks may join ----

// Expects that joining with `wrong` is refused for `reason`, and that the right rank can still
// join.
void ExpectRefused(const LinkedRankOptions& right, LinkedRankOptions wrong,
                   const std::string& reason) {
  WaitingRankZero zero(right);
  wrong.rendezvous = zero.address();
  const JoinedRank refused = JoinLinkedRanks(wrong);
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
  EXPECT_EQ(TextOf(refused.status()),
            absl::StrCat("rendezvous: rank 0 at ", zero.address(), ": ", reason));
  LinkedRankOptions last = right;
  last.rank = 1;
  last.rendezvous = zero.address();
  const JoinedRank joined = JoinLinkedRanks(last);
  EXPECT_TRUE(joined.ok()) << joined.status();
  const JoinedRank first = zero.Join();
  EXPECT_TRUE(first.ok()) << first.status();
}

TEST(LinkedRanks, AnotherSecretIsRefused) {
  LinkedRankOptions right = Patient(2);
  LinkedRankOptions wrong = right;
  wrong.rank = 1;
  wrong.secret = kOtherSecret;
  ExpectRefused(right, wrong, "its secret differs from ours");
}

TEST(LinkedRanks, AnotherProgramIsRefused) {
  LinkedRankOptions right = Patient(2);
  right.version = "1.2.3";
  LinkedRankOptions wrong = right;
  wrong.rank = 1;
  wrong.version = "1.2.4";
  ExpectRefused(right, wrong,
                "it refuses this rank: its program's version is 1.2.4, rank 0's is 1.2.3");
}

TEST(LinkedRanks, AnotherWorldIsRefused) {
  LinkedRankOptions wrong = Patient(3);
  wrong.rank = 1;
  ExpectRefused(Patient(2), wrong, "it refuses this rank: its world has 3 ranks, rank 0's has 2");
}

TEST(LinkedRanks, ARankThatIsTakenIsRefused) {
  LinkedRankOptions options = Patient(3);
  WaitingRankZero zero(options);
  options.rendezvous = zero.address();
  options.rank = 1;
  JoinedRank one, two;
  std::atomic<int> num_refused{0};
  const auto join = [&](JoinedRank* joined) {
    *joined = JoinLinkedRanks(options);
    if (!joined->ok()) ++num_refused;
  };
  std::thread first([&] { join(&one); });
  std::thread second([&] { join(&two); });
  while (num_refused == 0) std::this_thread::yield();
  LinkedRankOptions last = options;
  last.rank = 2;
  JoinedRank three = JoinLinkedRanks(last);
  first.join();
  second.join();
  EXPECT_TRUE(three.ok()) << three.status();
  EXPECT_TRUE(zero.Join().ok());
  EXPECT_NE(one.ok(), two.ok());
  EXPECT_THAT(TextOf((one.ok() ? two : one).status()),
              HasSubstr("it refuses this rank: rank 1 has already joined from 127.0.0.1:"));
}

TEST(LinkedRanks, ALateStrangerIsRefusedAndHarmsNoRank) {
  LinkedRankOptions options = Patient(2);
  WaitingRankZero zero(options);
  options.rendezvous = zero.address();
  options.rank = 1;
  const JoinedRank one = JoinLinkedRanks(options);
  const JoinedRank first = zero.Join();
  EXPECT_THAT(TextOf(JoinLinkedRanks(options).status()),
              HasSubstr("rank 1 has already joined from"));
  std::thread other([&] { EXPECT_TRUE((*one)->Exchange("").ok()); });
  EXPECT_TRUE((*first)->Exchange("").ok());
  other.join();
}

TEST(LinkedRanks, TwoGroupsDoNotShareARendezvous) {
  WaitingRankZero zero(Patient(2));
  LinkedRankOptions options = Patient(2);
  options.rendezvous = zero.address();
  EXPECT_EQ(
      TextOf(JoinLinkedRanks(options).status()),
      absl::StrCat("rendezvous: cannot listen on ", zero.address(), ": Address already in use"));
  options.rank = 1;
  EXPECT_TRUE(JoinLinkedRanks(options).ok());
}

// A socket of another program that listens at a loopback address.
struct Listener {
  Listener() {
    Address any = *ParseAddress("127.0.0.1", 0, Names::kRefused, "address");
    EXPECT_EQ(bind(file, any.data(), any.size()), 0);
    EXPECT_EQ(listen(file, 10), 0);
    socklen_t size = address.capacity();
    getsockname(file, address.data(), &size);
  }
  ~Listener() { close(file); }
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  Address address;
};

int FreePort() { return Listener().address.port(); }

TEST(LinkedRanks, MayStartBeforeRankZero) {
  LinkedRankOptions options = Patient(2);
  options.rendezvous = absl::StrCat("127.0.0.1:", FreePort());
  LinkedRankOptions other = options;
  other.rank = 1;
  std::atomic<bool> has_started{false};
  JoinedRank one;
  std::thread joins([&] {
    has_started = true;
    one = JoinLinkedRanks(other);
  });
  while (!has_started) std::this_thread::yield();
  const JoinedRank first = JoinLinkedRanks(options);
  joins.join();
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(one.ok()) << one.status();
}

TEST(LinkedRanks, ARankThatDoesNotJoinIsNamed) {
  LinkedRankOptions options = Patient(3);
  options.rendezvous = "127.0.0.1:0";
  options.patience = absl::Milliseconds(1);
  EXPECT_THAT(TextOf(JoinLinkedRanks(options).status()),
              testing::MatchesRegex("rendezvous: rank 1, 2 did not join at 127.0.0.1:[0-9]+ "
                                    "within 1ms"));
  options.rendezvous = absl::StrCat("127.0.0.1:", FreePort());
  options.rank = 1;
  EXPECT_THAT(TextOf(JoinLinkedRanks(options).status()),
              HasSubstr(absl::StrCat("at ", options.rendezvous, " within 1ms")));
}

TEST(LinkedRanks, GarbageHarmsNoRank) {
  LinkedRankOptions options = Patient(2);
  WaitingRankZero zero(options);
  const auto parsed = *ParseHostAndPort(zero.address(), "rendezvous");
  const Address address = *ParseAddress(parsed.host, parsed.port, Names::kRefused, "address");
  std::vector<int> strangers;
  const auto send_garbage = [&] {
    for (const std::string& garbage :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\x7f", 4),
          std::string(4, '\0'), std::string("\x02\0\0\0{}", 6), std::string(100'000, 'x')}) {
      strangers.push_back(socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_EQ(connect(strangers.back(), address.data(), address.size()), 0);
      send(strangers.back(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
  };
  send_garbage();
  options.rendezvous = zero.address();
  options.rank = 1;
  const JoinedRank one = JoinLinkedRanks(options);
  ASSERT_TRUE(one.ok()) << one.status();
  const JoinedRank first = zero.Join();
  send_garbage();
  std::thread other([&] { GatherNothing(one->get()); });
  GatherNothing(first->get());
  other.join();
  EXPECT_TRUE((*first)->status().ok());
  for (const int file : strangers) close(file);
}

// Another program listens at the rendezvous.
TEST(LinkedRanks, AnAnswerThatIsNotRankZerosIsRefused) {
  const Listener listener;
  LinkedRankOptions options = Patient(2);
  options.rank = 1;
  options.rendezvous = ToString(listener.address);
  std::thread answers([&] {
    const int file = accept(listener.file, nullptr, nullptr);
    const std::string garbage("\x03\0\0\0abc", 7);
    send(file, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    char bytes[100];
    while (recv(file, bytes, sizeof(bytes), 0) > 0) {
    }
    close(file);
  });
  EXPECT_THAT(TextOf(JoinLinkedRanks(options).status()),
              StartsWith(absl::StrCat("rendezvous: rank 0 at ", options.rendezvous,
                                      ": it does not speak TLS 1.3 with the secret: ")));
  answers.join();
}

TEST(LinkedRanks, InvalidOptionsAreNamed) {
  const auto error = [](LinkedRankOptions options) {
    return TextOf(JoinLinkedRanks(options).status());
  };
  EXPECT_EQ(error({.rank = 2, .world = 2, .rendezvous = "127.0.0.1:1"}),
            "rank: must be from 0 to 1, got 2");
  EXPECT_EQ(error({.rank = -1, .world = 2, .rendezvous = "127.0.0.1:1"}),
            "rank: must be from 0 to 1, got -1");
  EXPECT_EQ(error({.world = 65, .rendezvous = "127.0.0.1:1"}),
            "tensor_parallel: must be from 1 to 64, got 65");
  EXPECT_EQ(error({.world = 2, .rendezvous = "127.0.0.1"}),
            "rendezvous: must be HOST:PORT with a port from 0 to 65535, got \"127.0.0.1\"");
  EXPECT_EQ(error({.rank = 1, .world = 2, .rendezvous = "127.0.0.1:0"}),
            "rendezvous: must have rank 0's port, got port 0");
  EXPECT_THAT(
      error({.world = 2, .rendezvous = "127.0.0.1:7000"}),
      StartsWith("rendezvous_secret: the secret must have from 32 to 1000 characters, got 0"));
  EXPECT_EQ(error({.world = 2, .rendezvous = "192.0.2.1:7000", .secret = kTestSecret}),
            "rendezvous: cannot listen on 192.0.2.1:7000: Cannot assign requested address");
}

}  // namespace
}  // namespace tandem
