// Reductions over a block of 1024 threads.
#ifndef TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_
#define TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_

#include <cub/block/block_reduce.cuh>

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

inline constexpr uint32_t kPlusInfinity = 0x7F800000u;
inline constexpr uint32_t kMinusInfinity = 0xFF800000u;

// Returns the temporary storage for a collective of CUB. It can be reused after a barrier.
template <typename Collective>
TANDEM_DEVICE typename Collective::TempStorage& StorageOf(BlockScratch* scratch) {
  using Storage = typename Collective::TempStorage;
  static_assert(sizeof(Storage) <= sizeof(scratch->storage));
  static_assert(alignof(Storage) <= alignof(BlockScratch));
  void* const storage = scratch->storage;
  return *static_cast<Storage*>(storage);
}

TANDEM_DEVICE bool IsFinite(float x) { return (FloatToBits(x) & kPlusInfinity) != kPlusInfinity; }

// Combines the values of all threads and returns the result in every thread. `combine` must not
// depend on the order.
template <typename T, typename Combine>
TANDEM_DEVICE T OfBlock(T value, BlockScratch* scratch, const Combine& combine) {
  using Reduce = cub::BlockReduce<T, kScratchThreads>;
  auto* const result = reinterpret_cast<T*>(&scratch->result);
  value = Reduce(StorageOf<Reduce>(scratch)).Reduce(value, combine);
  if (ThreadIndex() == 0) Store(result, value);
  Barrier();
  value = Load(result);
  Barrier();
  return value;
}

// The largest value seen, with its index; the lowest index among equals. NaN counts as +inf.
struct Largest {
  float value;
  int index;

  TANDEM_DEVICE static Largest Nothing() { return {BitsToFloat(kMinusInfinity), 0}; }
  TANDEM_DEVICE void See(float other, int at) {
    if (other != other) other = BitsToFloat(kPlusInfinity);
    if (other > value || (other == value && at < index)) {
      value = other;
      index = at;
    }
  }
};

TANDEM_DEVICE Largest LargestOfBlock(const Largest& largest, BlockScratch* scratch) {
  return OfBlock(largest, scratch, [](Largest a, const Largest& b) {
    a.See(b.value, b.index);
    return a;
  });
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_
