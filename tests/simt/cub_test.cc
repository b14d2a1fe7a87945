// The host twins of CUB's collectives, and the faults that the machine sees in their use.
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/launch_shapes.h"
#include "tests/simt/simt_testing.h"

namespace tandem::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two uses of a collective in the same storage.
template <typename Collective, bool kWithBarrier>
struct ReusesStorage : OfNumbers {
  static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto& storage = *reinterpret_cast<typename Collective::TempStorage*>(bytes);
    const int number = Load(task.in + ThreadIndex());
    Use(Collective(storage), number, task);
    if (kWithBarrier) Barrier();
    Use(Collective(storage), number, task);
  }
  static void Use(cub::BlockReduce<int, kCount> reduce, int number, const Task& task) {
    const int sum = reduce.Reduce(number, [](int a, int b) { return a + b; });
    Store(task.out + ThreadIndex(), sum);
  }
  static void Use(cub::BlockScan<int, kCount> scan, int number, const Task& task) {
    int before, all;
    scan.ExclusiveSum(number, before, all);
    Store(task.out + ThreadIndex(), all * kCount + before);
  }
};
// Row 200 of the bug catalogue: on a device, storage was aligned to 8 bytes, but CUB reads 16 at a
// time.
TEST(SimtCub, StorageHasTheAlignmentThatCubNeeds) {
  struct TellsAlignment : OfNumbers {
    static void Run(const Task& task, unsigned char* bytes) {
      WaitForKernelsBefore();
      Store(task.out + ThreadIndex(),
            static_cast<int>(reinterpret_cast<uintptr_t>(bytes) % kSharedAlignment));
    }
  };
  Array in(kCount), out(kCount);
  EXPECT_THAT(Fault<TellsAlignment>({in.data(), out.data()}), IsEmpty());
  EXPECT_EQ(out[0], 0);
  constexpr size_t kAsked = alignof(cub::BlockScan<uint64_t, kSamplingThreads>::TempStorage);
  EXPECT_EQ(kAsked, 32);
  EXPECT_EQ(offsetof(SamplingScratch, of_block) % kAsked, 0);
  EXPECT_EQ(kSharedAlignment % kAsked, 0);
}
TEST(SimtCub, ReducesInABlocksFirstThread) {
  Array in(kCount), out(kCount);
  EXPECT_THAT((Fault<ReusesStorage<cub::BlockReduce<int, kCount>, true>>({in.data(), out.data()})),
              IsEmpty());
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(out[i], i == 0 ? kCount * (kCount - 1) / 2 : -1);
}
TEST(SimtCub, ScansABlock) {
  Array in(kCount), out(kCount);
  EXPECT_THAT((Fault<ReusesStorage<cub::BlockScan<int, kCount>, true>>({in.data(), out.data()})),
              IsEmpty());
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(out[i], kCount * (kCount - 1) / 2 * kCount + i * (i - 1) / 2);
  }
}
TEST(SimtCub, SeesReuseOfStorageWithoutABarrier) {
  EXPECT_THAT((FaultOfArrays<ReusesStorage<cub::BlockReduce<int, kCount>, false>>()),
              HasSubstr("a race"));
  EXPECT_THAT((FaultOfArrays<ReusesStorage<cub::BlockScan<int, kCount>, false>>()),
              HasSubstr("a race"));
}

}  // namespace
}  // namespace tandem::cuda
