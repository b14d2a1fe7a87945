// Phase barriers, bulk copies and ldmatrix on the host: their results, and each fault that the
// machine claims to detect.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/simt_testing.h"

namespace tandem::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Faults that can be planted in a ring: warp 0 copies four stages of 128 bytes through two places,
// warp 1 adds them up.
enum class Planted {
  kNothing,
  kNoWaitForBytes,      // reads all stages but the first before their copies were waited for
  kNoWaitForReader,     // copies into a place that may still be read
  kEarlyArrival,        // frees a place before it has been read
  kNoSyncWarp,          // one lane frees a place that other lanes still read
  kFewBytes,            // expects fewer bytes than come
  kManyBytes,           // expects more
  kWrongParity,         // waits for the phase before
  kNoFence,             // bulk copies do not see the barrier
  kNoBlockBarrier,      // a thread uses a barrier that another initialises
  kMissingArrival,      // never frees a place
  kWritesWithoutFence,  // writes a place that is then copied to
  kWritesWithFence,
  kLeavesEarly,  // no thread waits for the last stage
};

template <Planted kPlanted>
struct Ring : OfNumbers {
  static constexpr int kStages = 4, kPlaces = 2, kStageNumbers = 32;
  static constexpr bool Is(Planted planted) { return kPlanted == planted; }

  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const ring = reinterpret_cast<int*>(bytes);
    auto* const full = reinterpret_cast<PhaseBarrier*>(bytes + kPlaces * 4 * kStageNumbers);
    auto* const empty = full + kPlaces;
    if (ThreadIndex() == 0) {
      for (int i = 0; i < kPlaces; ++i) {
        InitPhases(full + i, CopyArrivals());
        InitPhases(empty + i, 1);
      }
      if (!Is(Planted::kNoFence)) FencePhases();
    }
    if (Is(Planted::kWritesWithoutFence) || Is(Planted::kWritesWithFence)) {
      Store(ring + ThreadIndex(), 1);
      if (Is(Planted::kWritesWithFence)) FenceBulkCopies();
    }
    if (!Is(Planted::kNoBlockBarrier)) Barrier();
    if (WarpIndex() == 0) return Fill(task, ring, full, empty);
    int sum = 0;
    for (int s = 0; s < kStages - (Is(Planted::kLeavesEarly) ? 1 : 0); ++s) {
      const int place = s % kPlaces;
      if (Is(Planted::kEarlyArrival) && Lane() == 0) Arrive(empty + place);
      if (!Is(Planted::kNoWaitForBytes) || s == 0) {
        WaitForPhase(full + place, (s / kPlaces + (Is(Planted::kWrongParity) ? 1 : 0)) % 2);
      }
      sum += Load(ring + place * kStageNumbers + Lane());
      if (!Is(Planted::kNoSyncWarp)) SyncWarp();
      const bool frees = !Is(Planted::kEarlyArrival) && !Is(Planted::kMissingArrival);
      if (frees && Lane() == 0) Arrive(empty + place);
    }
    Store(task.out + Lane(), sum);
  }

  static void Fill(const Task& task, int* ring, PhaseBarrier* full, PhaseBarrier* empty) {
    for (int s = 0; s < kStages; ++s) {
      const int place = s % kPlaces;
      if (s >= kPlaces && !Is(Planted::kNoWaitForReader)) {
        WaitForPhase(empty + place, (s / kPlaces + 1) % 2);
      }
      int expected = 4 * kStageNumbers;
      if (Is(Planted::kFewBytes)) expected -= 16;
      if (Is(Planted::kManyBytes)) expected += 16;
      ExpectCopies(full + place, expected);
      for (int half = 0; half < 2; ++half) {
        const int at = half * kStageNumbers / 2;
        CopyByWarp(ring + place * kStageNumbers + at, task.in + s * kStageNumbers + at,
                   2 * kStageNumbers, full + place);
      }
      EndCopies(full + place);
    }
  }
};

template <Planted kPlanted>
std::string FaultOfRing(Array* out) {
  Array in(128);
  return Fault<Ring<kPlanted>>({in.data(), out->data()}, {1, 1, 1, 512});
}
template <Planted kPlanted>
std::string FaultOfRing() {
  Array out(kCount);
  return FaultOfRing<kPlanted>(&out);
}

TEST(Phases, PassStagesThroughARing) {
  Array out(kCount);
  EXPECT_THAT(FaultOfRing<Planted::kNothing>(&out), IsEmpty());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], 4 * i + 32 * (1 + 2 + 3));
  EXPECT_THAT(FaultOfRing<Planted::kWritesWithFence>(), IsEmpty());
}

TEST(Phases, EachPlantedFaultIsFound) {
  EXPECT_THAT(FaultOfRing<Planted::kNoWaitForBytes>(), HasSubstr("still being copied"));
  EXPECT_THAT(FaultOfRing<Planted::kNoWaitForReader>(), HasSubstr("only waits for its copies"));
  EXPECT_THAT(FaultOfRing<Planted::kEarlyArrival>(), HasSubstr("a race"));
  EXPECT_THAT(FaultOfRing<Planted::kNoSyncWarp>(), HasSubstr("a race"));
  EXPECT_THAT(FaultOfRing<Planted::kFewBytes>(), HasSubstr("16 bytes more than the phase expects"));
  EXPECT_THAT(FaultOfRing<Planted::kManyBytes>(),
              HasSubstr("waits for a phase that cannot end: 0 arrivals and 16 bytes are missing"));
  EXPECT_THAT(FaultOfRing<Planted::kWrongParity>(), HasSubstr("unwritten memory"));
  EXPECT_THAT(FaultOfRing<Planted::kNoFence>(), HasSubstr("no fence has shown to copies"));
  EXPECT_THAT(FaultOfRing<Planted::kNoBlockBarrier>(), HasSubstr("initialises: a race"));
  EXPECT_THAT(FaultOfRing<Planted::kMissingArrival>(),
              HasSubstr("waits for a phase that cannot end: 1 arrivals and 0 bytes are missing"));
  EXPECT_THAT(FaultOfRing<Planted::kWritesWithoutFence>(), HasSubstr("wrote without a fence"));
  EXPECT_THAT(FaultOfRing<Planted::kLeavesEarly>(), HasSubstr("no thread waited for"));
  EXPECT_THAT(FaultOfRing<Planted::kNothing>(), IsEmpty());
}

// A place is overwritten after two warps have read it, one of which did not arrive.
template <int kArrivals>
struct TwoReaders {
  using Task = Numbers;
  static constexpr int kThreads = 96;
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const numbers = reinterpret_cast<int*>(bytes);
    auto* const read = reinterpret_cast<PhaseBarrier*>(bytes + 128);
    if (ThreadIndex() == 0) InitPhases(read, kArrivals);
    if (WarpIndex() == 0) Store(numbers + Lane(), Load(task.in + Lane()));
    Barrier();
    if (WarpIndex() == 0) {
      WaitForPhase(read, 0);
      Store(numbers + Lane(), 0);
      return;
    }
    Store(task.out + ThreadIndex() - 32, Load(numbers + Lane()));
    SyncWarp();
    if (Lane() == 0 && WarpIndex() <= kArrivals) Arrive(read);
  }
};
TEST(Phases, AllReadersOfAPlaceArrive) {
  EXPECT_THAT(FaultOfArrays<TwoReaders<2>>(), IsEmpty());
  EXPECT_THAT(FaultOfArrays<TwoReaders<1>>(), HasSubstr("a race"));
}

// Order passes from thread to thread: 0 writes, 32 learns of it and tells 64, which reads.
template <bool kTells>
struct Chain {
  using Task = Numbers;
  static constexpr int kThreads = 96;
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const number = reinterpret_cast<int*>(bytes);
    auto* const barriers = reinterpret_cast<PhaseBarrier*>(bytes + 16);
    if (ThreadIndex() == 0) {
      for (int i = 0; i < 2; ++i) InitPhases(barriers + i, 1);
    }
    Barrier();
    if (ThreadIndex() == 0) {
      Store(number, 5);
      Arrive(barriers);
    } else if (ThreadIndex() == 32) {
      if (kTells) WaitForPhase(barriers, 0);
      Arrive(barriers + 1);
    } else if (ThreadIndex() == 64) {
      WaitForPhase(barriers + 1, 0);
      Store(task.out, Load(number));
    }
  }
};
TEST(Phases, OrderIsTransitive) {
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<Chain<true>>({in.data(), out.data()}), IsEmpty());
  EXPECT_EQ(out[0], 5);
  EXPECT_THAT(FaultOfArrays<Chain<false>>(), HasSubstr("a race"));
}

template <int kFault>
struct Misuses : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const barrier = reinterpret_cast<PhaseBarrier*>(bytes);
    if (ThreadIndex() != 0) return;
    if (kFault == 0) return Arrive(barrier);
    InitPhases(barrier, kFault == 1 ? 0 : 1);
    if (kFault == 2) InitPhases(barrier, 1);
    FencePhases();
    ExpectCopies(barrier, 16);
    if (kFault == 3) CopyByWarp(bytes + 16, task.in, 12, barrier);
    if (kFault == 4) Arrive(barrier);
  }
};
TEST(Phases, MisuseIsFound) {
  EXPECT_THAT(FaultOfArrays<Misuses<0>>(), HasSubstr("not initialised"));
  EXPECT_THAT(FaultOfArrays<Misuses<1>>(), HasSubstr("without arrivals"));
  EXPECT_THAT(FaultOfArrays<Misuses<2>>(), HasSubstr("initialises a phase barrier twice"));
  EXPECT_THAT(FaultOfArrays<Misuses<3>>(), HasSubstr("a bulk copy of 12 bytes"));
  EXPECT_THAT(FaultOfArrays<Misuses<4>>(), HasSubstr("only waits for its copies"));
}

// Four matrices whose rows are in other places.
struct LoadsMatrices : OfNumbers {
  static constexpr int kThreads = kWarpSize;
  static int PlaceOf(int matrix, int row) { return (matrix * 8 + row) * 5 % 32; }
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const rows = reinterpret_cast<Words4*>(bytes);
    Words4 row;
    for (int i = 0; i < 4; ++i) row.words[i] = static_cast<uint32_t>(Lane() * 4 + i);
    Store(rows + PlaceOf(Lane() / 8, Lane() % 8), row);
    SyncWarp();
    const Words4 words = LoadMatrices(rows + PlaceOf(Lane() / 8, Lane() % 8));
    for (int m = 0; m < 4; ++m) Store(task.out + 4 * Lane() + m, static_cast<int>(words.words[m]));
  }
};
TEST(Phases, LoadsMatrices) {
  Array in(1), out(128);
  EXPECT_THAT(Fault<LoadsMatrices>({in.data(), out.data()}), IsEmpty());
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < 4; ++m) {
      EXPECT_EQ(out[4 * lane + m], (m * 8 + lane / 4) * 4 + lane % 4) << lane << ", " << m;
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
