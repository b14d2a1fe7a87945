// The machine that runs kernels on the host detects each fault that it claims to detect, and
// reports no others.
#include "kernels/cuda/simt.h"

#include <bit>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/simt_testing.h"

namespace tandem::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Reverses a block's numbers through shared memory.
template <bool kWithBarrier>
struct Reverse : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<int*>(bytes);
    Store(shared + ThreadIndex(), Load(task.in + ThreadIndex()));
    if (kWithBarrier) Barrier();
    Store(task.out + ThreadIndex(), Load(shared + kCount - 1 - ThreadIndex()));
  }
};

TEST(Simt, RunsABlockWithBarriers) {
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<Reverse<true>>({in.data(), out.data()}), IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], kCount - 1 - i);
}

TEST(Simt, SeesAMissingBarrier) {
  EXPECT_THAT(FaultOfArrays<Reverse<false>>(), HasSubstr("reads unwritten memory"));
}

struct ReadsBeforeOthersWrite : OfNumbers {
  static void Run(const Task&, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<int*>(bytes);
    Store(shared + ThreadIndex(), 1);
    Barrier();
    const int next = Load(shared + (ThreadIndex() + 1) % kCount);
    Store(shared + ThreadIndex(), next);
  }
};
TEST(Simt, SeesAWriteToMemoryThatOthersStillRead) {
  EXPECT_THAT(FaultOfArrays<ReadsBeforeOthersWrite>(), HasSubstr("a race"));
}

// All threads add to one number, which is set before and read afterwards.
template <bool kWithFirstBarrier, bool kWithSecondBarrier>
struct Adds : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const sum = reinterpret_cast<uint32_t*>(bytes);
    if (ThreadIndex() == 0) Store(sum, 1u);
    if (kWithFirstBarrier) Barrier();
    AtomicAdd(sum, 2u);
    if (kWithSecondBarrier) Barrier();
    Store(task.out + ThreadIndex(), static_cast<int>(Load(sum)));
  }
};
TEST(Simt, AddsAtomicallyWithoutARace) {
  Array in(kCount), out(kCount);
  EXPECT_THAT((Fault<Adds<true, true>>({in.data(), out.data()})), IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 1 + 2 * kCount);
}
TEST(Simt, SeesAtomicSumsWithoutBarriers) {
  EXPECT_THAT((FaultOfArrays<Adds<false, true>>()), HasSubstr("a race"));
  EXPECT_THAT((FaultOfArrays<Adds<true, false>>()), HasSubstr("a race"));
}
struct AddsToNothing : OfNumbers {
  static void Run(const Task&, unsigned char* bytes) {
    WaitForKernelsBefore();
    AtomicAdd(reinterpret_cast<uint32_t*>(bytes), 2u);
  }
};
TEST(Simt, SeesAnAtomicAddToUninitializedMemory) {
  EXPECT_THAT(FaultOfArrays<AddsToNothing>(), HasSubstr("unwritten memory"));
}

// Each thread stores the number before its own addition of 2^31, which wraps.
struct TellsNumbersBefore : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const sum = reinterpret_cast<uint32_t*>(bytes);
    if (ThreadIndex() == 0) Store(sum, 5u);
    Barrier();
    Store(task.out + ThreadIndex(), static_cast<int>(AtomicAdd(sum, 0x80000000u)));
  }
};
TEST(Simt, AtomicAddReturnsTheNumberBeforeAndWraps) {
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<TellsNumbersBefore>({in.data(), out.data()}), IsEmpty());
  int num_low = 0;
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(out[i] & 0x7FFFFFFF, 5);
    num_low += out[i] == 5 ? 1 : 0;
  }
  EXPECT_EQ(num_low, kCount / 2);
}

struct SumsLanes : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const uint32_t sum = SumOfLanes(0x10000000u + static_cast<uint32_t>(ThreadIndex()));
    Store(task.out + ThreadIndex(), static_cast<int>(sum) + 1000 * NumOnes(sum));
  }
};
TEST(Simt, SumsTheLanesOfEachWarp) {
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<SumsLanes>({in.data(), out.data()}), IsEmpty());
  for (int i = 0; i < kCount; ++i) {  // 32 times 2^28 wraps to 0
    const uint32_t sum = 16 * 31 + i / kWarpSize * kWarpSize * kWarpSize;
    EXPECT_EQ(out[i], static_cast<int>(sum) + 1000 * std::popcount(sum));
  }
}

template <bool kWithSync, int kDistance>
struct PassesInWarp : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<int*>(bytes);
    Store(shared + ThreadIndex(), ThreadIndex());
    if (kWithSync) SyncWarp();
    Store(task.out + ThreadIndex(), Load(shared + (ThreadIndex() ^ kDistance)));
  }
};
TEST(Simt, SyncWarpOrdersOnlyItsOwnWarp) {
  EXPECT_THAT((FaultOfArrays<PassesInWarp<true, 1>>()), IsEmpty());
  EXPECT_THAT((FaultOfArrays<PassesInWarp<false, 1>>()), HasSubstr("unwritten memory"));
  EXPECT_THAT((FaultOfArrays<PassesInWarp<true, 32>>()), HasSubstr("unwritten memory"));
}

struct WritesOneTooFar : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    Store(task.out + ThreadIndex() + 1, 0);
  }
};
TEST(Simt, SeesAnOutOfBoundsWrite) {
  EXPECT_THAT(FaultOfArrays<WritesOneTooFar>(),
              AllOf(HasSubstr("thread 63"), HasSubstr("outside"), HasSubstr("simt_test.cc")));
}

struct ReadsSharedTooFar : OfNumbers {
  static void Run(const Task&, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<int*>(bytes);
    Store(shared + ThreadIndex(), Load(shared + 256));
  }
};
TEST(Simt, SeesAnOutOfBoundsReadOfSharedMemory) {
  EXPECT_THAT(FaultOfArrays<ReadsSharedTooFar>(), HasSubstr("outside"));
}

struct ReadsMisaligned : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    Load(reinterpret_cast<const Words4*>(task.in + 1));
  }
};
TEST(Simt, SeesMisalignedAccesses) {
  EXPECT_THAT(FaultOfArrays<ReadsMisaligned>(), HasSubstr("aligned"));
}

struct LeavesBeforeTheBarrier : OfNumbers {
  static void Run(const Task&, unsigned char*) {
    WaitForKernelsBefore();
    if (ThreadIndex() == 5) return;
    Barrier();
  }
};
struct MeetsAtTwoBarriers : OfNumbers {
  static void Run(const Task&, unsigned char*) {
    WaitForKernelsBefore();
    if (ThreadIndex() < 32) {
      Barrier();
    } else {
      Barrier();
    }
  }
};
struct WaitsInPartOfAWarp : OfNumbers {
  static void Run(const Task&, unsigned char*) {
    WaitForKernelsBefore();
    if (Lane() != 3) ShuffleXor(1, 1);
  }
};
TEST(Simt, SeesBarriersAndShufflesThatSomeThreadsMiss) {
  EXPECT_THAT(FaultOfArrays<LeavesBeforeTheBarrier>(), HasSubstr("thread 5 has left"));
  EXPECT_THAT(FaultOfArrays<MeetsAtTwoBarriers>(), HasSubstr("another thread is at that of"));
  EXPECT_THAT(FaultOfArrays<WaitsInPartOfAWarp>(), HasSubstr("waits for its warp"));
  // The machine still works afterwards.
  EXPECT_THAT(FaultOfArrays<Reverse<true>>(), IsEmpty());
}

// Copies 16 bytes per thread through shared memory, in two groups. kLeft groups may still be in
// flight when the bytes are read.
template <int kLeft, bool kReadsOthers>
struct Copies : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<Words4*>(bytes);
    if (ThreadIndex() < kCount / 4) {
      CopyAsync16(shared + ThreadIndex(), task.in + 4 * ThreadIndex());
    }
    CopyCommit();
    CopyCommit();
    CopyWait<kLeft>();
    if (ThreadIndex() < kCount / 4) {
      const int which = kReadsOthers ? ThreadIndex() ^ 1 : ThreadIndex();
      Store(reinterpret_cast<Words4*>(task.out) + ThreadIndex(), Load(shared + which));
    }
    CopyWait<0>();
  }
};
TEST(Simt, CompletesCopiesAtTheWait) {
  Array in(kCount), out(kCount);
  EXPECT_THAT((Fault<Copies<1, false>>({in.data(), out.data()})), IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], i);
}
TEST(Simt, SeesAMissingWait) {
  EXPECT_THAT((FaultOfArrays<Copies<2, false>>()), HasSubstr("still being copied"));
}
TEST(Simt, CopyWaitOrdersOnlyTheThreadsOwnCopies) {
  EXPECT_THAT((FaultOfArrays<Copies<0, true>>()),
              testing::AnyOf(HasSubstr("a race"), HasSubstr("unwritten memory"),
                             HasSubstr("still being copied")));
}

struct LeavesWithCopies : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    CopyAsync16(bytes + 16 * ThreadIndex(), task.in);
    CopyCommit();
  }
};
TEST(Simt, SeesCopiesThatAreNeverWaitedFor) {
  EXPECT_THAT(FaultOfArrays<LeavesWithCopies>(), HasSubstr("did not wait for"));
}

struct BlocksWriteTheSame : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    if (ThreadIndex() == 0) Store(task.out, BlockX());
  }
};
TEST(Simt, SeesBlocksThatWriteTheSamePlace) {
  EXPECT_THAT(FaultOfArrays<BlocksWriteTheSame>({1, 1, 1, 0}), IsEmpty());
  EXPECT_THAT(FaultOfArrays<BlocksWriteTheSame>({2, 1, 1, 0}), HasSubstr("a race"));
}

TEST(Simt, SeesBlocksThatReadWhatOtherBlocksWrite) {
  Array numbers(kCount + 1);
  struct Shifted : OfNumbers {
    static void Run(const Task& task, unsigned char*) {
      WaitForKernelsBefore();
      if (ThreadIndex() == 0) Store(task.out + BlockX(), Load(task.in + BlockX()));
    }
  };
  EXPECT_THAT(Fault<Shifted>({numbers.data(), numbers.data()}, {3, 1, 1, 0}), IsEmpty());
  EXPECT_THAT(Fault<Shifted>({numbers.data(), numbers.data() + 1}, {3, 1, 1, 0}),
              HasSubstr("a race"));
}

// Actions of a kernel before and after the kernels before it have ended; one bit each.
enum Early { kReadsEarly = 1, kWritesEarly = 2, kWaits = 4 };
template <int kDoes>
struct BeginsEarly : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    int number = 0;
    if (kDoes & kReadsEarly) number = Load(task.in + ThreadIndex());
    if (kDoes & kWritesEarly) Store(task.out + ThreadIndex(), number);
    if (kDoes & kWaits) WaitForKernelsBefore();
    if (kDoes & kWaits) Store(task.out + ThreadIndex(), number + 1);
  }
};
TEST(Simt, SeesAccessesBeforeThePreviousKernelsHaveEnded) {
  Array in(kCount), out(kCount);
  EXPECT_THAT((Fault<BeginsEarly<kReadsEarly | kWaits>>({in.data(), out.data()})), IsEmpty());
  EXPECT_EQ(out[5], 6);
  // Memory that a kernel wrote.
  EXPECT_THAT((Fault<BeginsEarly<kReadsEarly | kWaits>>({out.data(), in.data()})),
              HasSubstr("does not wait for earlier kernels"));
  // The same memory after a copy has overwritten it.
  simt::Machine::Get().CopyBetweenKernels(in.data(), out.data(), kCount * sizeof(int));
  EXPECT_THAT((Fault<BeginsEarly<kReadsEarly | kWaits>>({out.data(), in.data()})), IsEmpty());
  // The same memory, written again, after the host has waited.
  EXPECT_THAT((Fault<BeginsEarly<kWaits>>({in.data(), out.data()})), IsEmpty());
  simt::Machine::Get().EndKernels();
  EXPECT_THAT((Fault<BeginsEarly<kReadsEarly | kWaits>>({out.data(), in.data()})), IsEmpty());
  EXPECT_THAT((FaultOfArrays<BeginsEarly<kWritesEarly | kWaits>>()),
              HasSubstr("does not wait for earlier kernels"));
  EXPECT_THAT((FaultOfArrays<BeginsEarly<kReadsEarly>>()),
              HasSubstr("leaves before earlier kernels have ended"));
}

struct Votes : OfNumbers {
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const auto votes = static_cast<int>(Vote(Lane() % 3 == 0));
    Store(task.out + ThreadIndex(), votes + ShuffleFrom(Lane(), 7));
  }
};
TEST(Simt, VotesAndShuffles) {
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<Votes>({in.data(), out.data()}), IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 0x49249249 + 7);
}

// A tile of numbers that are all different, exact in bf16 and in their sums.
struct MultipliesTile : OfNumbers {
  static constexpr int kThreads = 32;
  static int A(int m, int k) { return m == k ? 1 : m - k == 3 ? 2 : 0; }
  static int B(int k, int n) { return 8 * k + n; }
  static uint32_t Pair(int first, int second) {
    return PackBf16(static_cast<float>(first), static_cast<float>(second));
  }
  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int g = Lane() / 4, t = Lane() % 4 * 2;
    Words4 a;
    for (int i = 0; i < 4; ++i) {
      const int m = g + i % 2 * 8, k = t + i / 2 * 8;
      a.words[i] = Pair(A(m, k), A(m, k + 1));
    }
    const uint32_t b[2] = {Pair(B(t, g), B(t + 1, g)), Pair(B(t + 8, g), B(t + 9, g))};
    float sums[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    MultiplyTile(a, b, sums);
    for (int i = 0; i < 4; ++i) {
      Store(task.out + (g + i / 2 * 8) * 8 + t + i % 2, static_cast<int>(sums[i]));
    }
  }
};
TEST(Simt, MultipliesTiles) {
  Array in(1), out(128);
  EXPECT_THAT(Fault<MultipliesTile>({in.data(), out.data()}), IsEmpty());
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      int expected = 1;
      for (int k = 0; k < 16; ++k) expected += MultipliesTile::A(m, k) * MultipliesTile::B(k, n);
      EXPECT_EQ(out[m * 8 + n], expected) << m << ", " << n;
    }
  }
}

// Multiplies tiles of integers from a lane's words of both operands; kHalf 2 is all of k.
template <int kHalf>
struct MultipliesWholeTile {
  using Task = Numbers;
  static constexpr int kThreads = kWarpSize;
  static constexpr int kBegin = kHalf == 1 ? 16 : 0, kEnd = kHalf == 0 ? 16 : 32;
  static int A(int m, int k) { return (m * 31 + k * 17) % 256; }
  static int B(int k, int n) { return (n * 29 + k * 13) % 255 - 127; }
  static int First(int n) { return 1000 * n; }

  static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int g = Lane() / 4, t = Lane() % 4;
    Words4 a = {};
    uint32_t b[2] = {}, sums[4] = {};
    for (int i = 0; i < 4; ++i) {
      const int k = 4 * t + i;
      a.words[0] |= static_cast<uint32_t>(A(g, k)) << 8 * i;
      a.words[1] |= static_cast<uint32_t>(A(g + 8, k)) << 8 * i;
      a.words[2] |= static_cast<uint32_t>(A(g, k + 16)) << 8 * i;
      a.words[3] |= static_cast<uint32_t>(A(g + 8, k + 16)) << 8 * i;
      b[0] |= (static_cast<uint32_t>(B(k, g)) & 0xFF) << 8 * i;
      b[1] |= (static_cast<uint32_t>(B(k + 16, g)) & 0xFF) << 8 * i;
    }
    const uint32_t first[2] = {static_cast<uint32_t>(First(2 * t)),
                               static_cast<uint32_t>(First(2 * t + 1))};
    if constexpr (kHalf == 2) {
      MultiplyWholeTile(a, b, first, sums);
    } else {
      MultiplyHalfTile(a, b, kHalf, first, sums);
    }
    for (int i = 0; i < 4; ++i) {
      Store(task.out + (g + i / 2 * 8) * 8 + 2 * t + i % 2, static_cast<int>(sums[i]));
    }
  }
};
template <int kHalf>
void ExpectMultipliesWholeTile() {
  using Kernel = MultipliesWholeTile<kHalf>;
  Array in(1), out(128);
  EXPECT_THAT(Fault<Kernel>({in.data(), out.data()}), IsEmpty());
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      int expected = Kernel::First(n);
      for (int k = Kernel::kBegin; k < Kernel::kEnd; ++k)
        expected += Kernel::A(m, k) * Kernel::B(k, n);
      EXPECT_EQ(out[m * 8 + n], expected) << m << ", " << n;
    }
  }
}
TEST(Simt, MultipliesIntegerTiles) {
  ExpectMultipliesWholeTile<0>();
  ExpectMultipliesWholeTile<1>();
  ExpectMultipliesWholeTile<2>();
}

}  // namespace
}  // namespace tandem::cuda
