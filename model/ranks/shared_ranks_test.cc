#include "model/ranks/shared_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/instant.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::unique_ptr<Backend> OneThread() {
  return *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kAuto, .isa = ""});
}

TEST(RankShares, CoverEverythingOnceAndRankZeroHasTheMost) {
  for (int world = 1; world <= 7; ++world) {
    for (int count = 0; count <= 20; ++count) {
      int next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const RankShare share = RankShareOf(count, rank, world);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.size(), RankShareOf(count, 0, world).size());
        next = share.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(SharedRanks, GatherWhatEachHasWritten) {
  constexpr int kWorld = 3;
  constexpr int kRounds = 2000;
  const auto memory = *SharedMemory::Create(kWorld);
  const auto backend = OneThread();
  std::vector<std::unique_ptr<RankGroup>> groups;
  for (int r = 0; r < kWorld; ++r) groups.push_back(JoinSharedRanks(memory, r));
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r) {
    threads.emplace_back([&, r] {
      RankGroup* const group = groups[r].get();
      const Buffer buffers[2] = {*group->Memory(0, kWorld * sizeof(int), backend.get()),
                                 *group->Memory(1, kWorld * sizeof(int), backend.get())};
      for (int round = 0; round < kRounds; ++round) {
        int* const numbers = static_cast<int*>(buffers[round % 2].data());
        numbers[r] = round * kWorld + r;
        group->AllGather(
            [&](int rank, RankGroup::UsePiece use) { use(numbers + rank, sizeof(int)); });
        for (int other = 0; other < kWorld; ++other) {
          ASSERT_EQ(numbers[other], round * kWorld + other);
        }
      }
      EXPECT_THAT(*group->Exchange("rank " + std::to_string(r)),
                  ElementsAre("rank 0", "rank 1", "rank 2"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedRanks, FollowTheMessagesOfRankZeroUntilItEnds) {
  const auto memory = *SharedMemory::Create(2);
  auto leader = JoinSharedRanks(memory, 0);
  const auto follower = JoinSharedRanks(memory, 1);
  std::vector<std::string> heard;
  std::thread follows([&] {
    for (;;) {
      const auto message = follower->Receive();
      if (!message.ok()) break;
      heard.emplace_back(reinterpret_cast<const char*>(message->data()), message->size());
      follower->FillReplicated([] { FAIL() << "rank 0 fills"; });
    }
    EXPECT_TRUE(follower->is_over());
  });
  int num_fills = 0;
  for (const char* text : {"one", "", "three"}) {
    EXPECT_TRUE(leader->Send(BytesOf(text)).ok());
    leader->FillReplicated([&] { ++num_fills; });
  }
  leader = nullptr;
  follows.join();
  EXPECT_THAT(heard, ElementsAre("one", "", "three"));
  EXPECT_EQ(num_fills, 3);
}

TEST(SharedRanks, AFailureEndsEveryCall) {
  const auto memory = *SharedMemory::Create(3);
  const auto first = JoinSharedRanks(memory, 0);
  const auto second = JoinSharedRanks(memory, 1);
  std::thread waits([&] {
    second->AllGather([](int, RankGroup::UsePiece) {});
    EXPECT_THAT(std::string(second->status().message()), HasSubstr("it went wrong"));
    EXPECT_FALSE(second->Receive().ok());
  });
  first->Fail(absl::InternalError("it went wrong"));
  first->Fail(absl::InternalError("a later reason"));
  waits.join();
  EXPECT_EQ(first->status(), absl::InternalError("it went wrong"));
  EXPECT_FALSE(first->is_over());
  EXPECT_FALSE(first->Exchange("").ok());
}

TEST(SharedRanks, AProcessThatHangsIsGivenUp) {
  const auto memory = *SharedMemory::Create(2);
  const SharedRankOptions impatient{.silence = absl::Milliseconds(300)};
  const pid_t child = fork();
  if (child == 0) {
    const auto group = JoinSharedRanks(memory, 1, impatient);
    group->AllGather([](int, RankGroup::UsePiece) {});
    raise(SIGSTOP);
    _exit(0);
  }
  const auto group = JoinSharedRanks(memory, 0, impatient);
  group->AllGather([](int, RankGroup::UsePiece) {});
  EXPECT_TRUE(group->status().ok());
  group->AllGather([](int, RankGroup::UsePiece) {});
  EXPECT_THAT(std::string(group->status().message()), HasSubstr("rank 1 has been silent for"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// A pass may take longer than the limit of silence.
TEST(SharedRanks, ARankThatComputesForLongIsNotGivenUp) {
  const auto memory = *SharedMemory::Create(2);
  const SharedRankOptions impatient{.silence = absl::Seconds(1)};
  const auto first = JoinSharedRanks(memory, 0, impatient);
  const auto second = JoinSharedRanks(memory, 1, impatient);
  std::thread computes([&] {
    const Instant end = Instant::Now() + absl::Seconds(3);
    while (Instant::Now() < end) {
    }
    second->AllGather([](int, RankGroup::UsePiece) {});
  });
  first->AllGather([](int, RankGroup::UsePiece) {});
  computes.join();
  EXPECT_TRUE(first->status().ok()) << first->status();
}

TEST(SharedMemory, RefusesOtherDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(std::string(SharedMemory::Open(ends[0]).status().message()),
              HasSubstr("is not the memory of a group"));
  EXPECT_FALSE(SharedMemory::Open(-1).ok());
  close(ends[0]);
  close(ends[1]);
}

TEST(RankProcesses, AreReportedIfTheyEndTooEarly) {
  const auto memory = *SharedMemory::Create(2);
  absl::Status why;
  {
    std::atomic<bool> has_ended = false;
    const auto processes = RankProcesses::Start("/bin/sh", {"-c", "kill -9 $$"}, *memory,
                                                [&](const absl::Status& status) {
                                                  why = status;
                                                  has_ended = true;
                                                });
    ASSERT_TRUE(processes.ok()) << processes.status();
    while (!has_ended) std::this_thread::yield();
  }
  EXPECT_THAT(std::string(why.message()), HasSubstr("rank 1 was terminated by signal 9"));
}

TEST(RankProcesses, MissingProgramIsNamed) {
  const auto memory = *SharedMemory::Create(2);
  const auto processes =
      RankProcesses::Start("/no/such/program", {}, *memory, [](const absl::Status&) {});
  EXPECT_TRUE(absl::IsNotFound(processes.status()));
  EXPECT_THAT(std::string(processes.status().message()), HasSubstr("/no/such/program for rank 1"));
}

}  // namespace
}  // namespace tandem
