// Clusters of blocks and counters of the device on the host: their results, and each fault that the
// machine claims to detect.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/simt_testing.h"

namespace tandem::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two blocks bring four stages of 32 numbers through two places. Each copies half of a stage to
// both, and adds up all of it.
enum class Lapse {
  kNothing,
  kNoBarrierAtBegin,  // uses barriers that the other block may not have initialised
  kNoBarrierAtEnd,    // ends while the other block still arrives
  kOneBarrierLess,    // of a thread at the end
  kNoWaitForReader,   // of the other block: each frees the places of its own block only
  kEarlyArrival,      // frees a place of the other block before it has been read
  kNoSyncWarp,        // one lane frees a place that other lanes still read
  kFewBytes,          // block 1 expects only its own half
  kOwnBytes,          // block 0 copies to itself only
  kLeavesEarly,       // block 1 does not wait for the last stage
  kWaitsAsBlock,      // waits for the other block's arrivals without acquiring them
  kMissingArrival,    // at the other block
  kThirdBlock,        // copies to a block that does not exist
};

template <Lapse kLapse>
struct SharedRing : OfNumbers {
  static constexpr int kStages = 4, kPlaces = 2, kStageNumbers = 32, kBlocks = 2;
  static constexpr bool Is(Lapse planted) { return kLapse == planted; }
  static bool IsIn(Lapse planted, int rank) { return Is(planted) && ClusterRank() == rank; }

  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const ring = reinterpret_cast<int*>(bytes);
    auto* const full = reinterpret_cast<PhaseBarrier*>(bytes + kPlaces * 4 * kStageNumbers);
    auto* const empty = full + kPlaces;
    if (ThreadIndex() == 0) {
      for (int i = 0; i < kPlaces; ++i) {
        InitPhases(full + i, CopyArrivals());
        InitPhases(empty + i, Is(Lapse::kNoWaitForReader) ? 1 : kBlocks);
      }
      FencePhases();
    }
    if (Is(Lapse::kNoBarrierAtBegin)) {
      Barrier();
    } else {
      ClusterBarrier();
    }
    if (WarpIndex() == 0) {
      Fill(task, ring, full, empty);
    } else {
      Add(task, ring, full, empty);
    }
    if (IsIn(Lapse::kOneBarrierLess, 1) && ThreadIndex() == 3) return;
    if (!Is(Lapse::kNoBarrierAtEnd)) ClusterBarrier();
  }

  static void Add(const Task& task, const int* ring, PhaseBarrier* full, PhaseBarrier* empty) {
    int sum = 0;
    for (int s = 0; s < kStages - (IsIn(Lapse::kLeavesEarly, 1) ? 1 : 0); ++s) {
      const int place = s % kPlaces;
      const int early = Is(Lapse::kEarlyArrival) ? 1 - ClusterRank() : -1;  // lane and rank
      WaitForPhase(full + place, s / kPlaces % 2);
      if (Lane() == early) ArriveAtBlock(early, empty + place);
      sum += Load(ring + place * kStageNumbers + Lane());
      if (!Is(Lapse::kNoSyncWarp)) SyncWarp();
      const int blocks = Is(Lapse::kMissingArrival) ? 1 : kBlocks;
      if (Is(Lapse::kNoWaitForReader)) {
        if (Lane() == 0) Arrive(empty + place);
      } else if (Lane() < blocks && Lane() != early) {
        ArriveAtBlock(Lane(), empty + place);
      }
    }
    Store(task.out + BlockX() * kWarpSize + Lane(), sum);
  }

  static void Fill(const Task& task, int* ring, PhaseBarrier* full, PhaseBarrier* empty) {
    constexpr int kHalf = kStageNumbers / kBlocks, kHalfBytes = 4 * kHalf;
    const int at = ClusterRank() * kHalf;
    for (int s = 0; s < kStages; ++s) {
      const int place = s % kPlaces;
      if (s >= kPlaces && Is(Lapse::kWaitsAsBlock)) {
        WaitForPhase(empty + place, (s / kPlaces + 1) % 2);
      } else if (s >= kPlaces) {
        WaitForPhaseOfCluster(empty + place, (s / kPlaces + 1) % 2);
      }
      ExpectCopies(full + place, (IsIn(Lapse::kFewBytes, 1) ? 1 : kBlocks) * kHalfBytes);
      uint32_t ranks = 0b11;
      if (IsIn(Lapse::kOwnBytes, 0)) ranks = 0b01;
      if (Is(Lapse::kThirdBlock)) ranks = 0b101;
      CopyToBlocksByWarp(ranks, ring + place * kStageNumbers + at, task.in + s * kStageNumbers + at,
                         kHalfBytes, full + place);
    }
  }
};

template <Lapse kLapse>
std::string FaultOfSharedRing(Array* out, int blocks = 2) {
  Array in(128);
  return Fault<SharedRing<kLapse>>({in.data(), out->data()},
                                   {.x = blocks, .shared_bytes = 512, .cluster = 2});
}
template <Lapse kLapse>
std::string FaultOfSharedRing() {
  Array out(kCount);
  return FaultOfSharedRing<kLapse>(&out);
}

TEST(Clusters, BlocksShareStages) {
  Array out(4 * 32);
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNothing>(&out, 4), IsEmpty());
  for (int i = 0; i < 4 * 32; ++i) EXPECT_EQ(out[i], 4 * (i % 32) + 32 * (1 + 2 + 3));
}

TEST(Clusters, EachPlantedFaultIsFound) {
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNoBarrierAtBegin>(),
              HasSubstr("of another block initialises"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNoBarrierAtEnd>(), HasSubstr("may end before thread"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kOneBarrierLess>(),
              HasSubstr("waits at a barrier of the cluster, but thread 3 has left"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNoWaitForReader>(),
              AllOf(HasSubstr("memory that a bulk copy of block 0 writes"), HasSubstr("a race")));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kEarlyArrival>(), HasSubstr("reads: a race"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNoSyncWarp>(), HasSubstr("a race"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kFewBytes>(),
              HasSubstr("64 bytes more than the phase expects"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kOwnBytes>(),
              HasSubstr("waits for a phase that cannot end: 0 arrivals and 64 bytes are missing"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kLeavesEarly>(), HasSubstr("no thread waited for"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kWaitsAsBlock>(), HasSubstr("as if they were of this one"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kMissingArrival>(),
              HasSubstr("waits for a phase that cannot end: 1 arrivals and 0 bytes are missing"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kThirdBlock>(), HasSubstr("that the cluster does not have"));
  EXPECT_THAT(FaultOfSharedRing<Lapse::kNothing>(), IsEmpty());
}

// One block writes global memory, and the other reads it.
template <bool kWaits>
struct WritesForOther : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    if (ClusterRank() == 0) Store(task.out + ThreadIndex(), ThreadIndex());
    if (kWaits) {
      ClusterBarrier();
    } else {
      Barrier();
    }
    if (ClusterRank() == 1) Load(task.out + kCount - 1 - ThreadIndex());
  }
};
TEST(Clusters, BarrierOrdersMemoryOfTheDevice) {
  EXPECT_THAT((FaultOfArrays<WritesForOther<true>>({.x = 4, .cluster = 2})),
              HasSubstr("writes memory that thread"));  // of the other cluster
  EXPECT_THAT((FaultOfArrays<WritesForOther<true>>({.x = 2, .cluster = 2})), IsEmpty());
  EXPECT_THAT((FaultOfArrays<WritesForOther<false>>({.x = 2, .cluster = 2})),
              HasSubstr("of block 0 writes: a race"));
}

// Order passes through a barrier of the block and an arrival at the other block.
template <bool kWaits>
struct TellsOther : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const written = reinterpret_cast<PhaseBarrier*>(bytes);
    if (ThreadIndex() == 0) InitPhases(written, 1);
    ClusterBarrier();
    if (ClusterRank() == 0) {
      Store(task.out + ThreadIndex(), ThreadIndex());
      if (kWaits) Barrier();
      if (ThreadIndex() == 40) ArriveAtBlock(1, written);
    } else {
      WaitForPhaseOfCluster(written, 0);
      Load(task.out + kCount - 1 - ThreadIndex());
    }
  }
};
TEST(Clusters, ArrivalsPassOnTheOrderOfABlock) {
  EXPECT_THAT((FaultOfArrays<TellsOther<true>>({.x = 2, .shared_bytes = 8, .cluster = 2})),
              IsEmpty());
  EXPECT_THAT((FaultOfArrays<TellsOther<false>>({.x = 2, .shared_bytes = 8, .cluster = 2})),
              HasSubstr("of block 0 writes: a race"));
}

// Each block writes kCount numbers; the last one that counts adds up those of all.
enum class Slip {
  kNothing,
  kPlainCounter,         // an addition that orders nothing
  kNoBarrierBefore,      // other threads of a block may not have written yet
  kNoBarrierAfter,       // other threads of the last block do not know that it is last
  kWritesAfterCounting,  // one number
  kReadsBeforeCounting,  // as if the block were last
  kOtherCounter,         // each block has its own
  kResetByStore,         // of the counter, instead of an addition
};
template <Slip kSlip>
struct LastBlockAdds {
  using Task = Numbers;
  static constexpr int kThreads = kCount;
  static constexpr bool Is(Slip planted) { return kSlip == planted; }
  static constexpr int kBlocks = 4, kFirst = 8;  // numbers follow two counters and the sums

  static void AddAll(const Task& task) {
    int sum = 0;
    for (int b = 0; b < kBlocks; ++b) {
      sum += Load(task.out + kFirst + kCount * (1 + b) + kCount - 1 - ThreadIndex());
    }
    Store(task.out + kFirst + ThreadIndex(), sum);
  }
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const is_last = reinterpret_cast<int*>(bytes);
    auto* const counter =
        reinterpret_cast<uint32_t*>(task.out) + (Is(Slip::kOtherCounter) ? BlockX() : 0);
    int* const mine = task.out + kFirst + kCount * (1 + BlockX()) + ThreadIndex();
    const bool is_late = Is(Slip::kWritesAfterCounting) && ThreadIndex() == 0;
    if (!is_late) Store(mine, BlockX() + ThreadIndex());
    if (Is(Slip::kReadsBeforeCounting) && BlockX() == kBlocks - 1) AddAll(task);
    if (!Is(Slip::kNoBarrierBefore)) Barrier();
    if (ThreadIndex() == 0) {
      const uint32_t before =
          Is(Slip::kPlainCounter) ? AtomicAdd(counter, 1) : CountInOrder(counter, 1);
      const bool last =
          before == kBlocks - 1 || (Is(Slip::kOtherCounter) && BlockX() == kBlocks - 1);
      if (last && Is(Slip::kResetByStore)) Store(counter, 0u);
      if (last && !Is(Slip::kResetByStore)) CountInOrder(counter, 0u - kBlocks);
      Store(is_last, last ? 1 : 0);
    }
    if (is_late) Store(mine, BlockX() + ThreadIndex());
    if (Is(Slip::kNoBarrierAfter)) {
      if (WarpIndex() > 0 && BlockX() == kBlocks - 1) AddAll(task);
      return;
    }
    Barrier();
    if (Load(is_last) == 1) AddAll(task);
  }
};
template <Slip kSlip>
std::string FaultOfLast(Array* out) {
  Array in(1);
  for (int i = 0; i < 4; ++i) out->data()[i] = 0;
  return Fault<LastBlockAdds<kSlip>>({in.data(), out->data()}, {.x = 4, .shared_bytes = 16});
}
template <Slip kSlip>
std::string FaultOfLast() {
  Array out(8 + 5 * kCount);
  return FaultOfLast<kSlip>(&out);
}

TEST(Counters, LastBlockReadsWhatTheOthersWrote) {
  Array out(8 + 5 * kCount);
  EXPECT_THAT(FaultOfLast<Slip::kNothing>(&out), IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[8 + i], 4 * (kCount - 1 - i) + 1 + 2 + 3);
  EXPECT_EQ(out[0], 0);
}

TEST(Counters, EachPlantedFaultIsFound) {
  EXPECT_THAT(FaultOfLast<Slip::kPlainCounter>(), HasSubstr("writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kNoBarrierBefore>(), HasSubstr("writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kNoBarrierAfter>(), HasSubstr("writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kWritesAfterCounting>(),
              HasSubstr("thread 0 of block 0 writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kReadsBeforeCounting>(), HasSubstr("of block 0 writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kOtherCounter>(), HasSubstr("of block 0 writes: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kResetByStore>(), HasSubstr("adds to: a race"));
  EXPECT_THAT(FaultOfLast<Slip::kNothing>(), IsEmpty());
}

}  // namespace
}  // namespace tandem::cuda
