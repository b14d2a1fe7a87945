// Reductions over a block of 1024 threads.
#ifndef TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_
#define TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_

#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

inline constexpr uint32_t kPlusInfinity = 0x7F800000u;
inline constexpr uint32_t kMinusInfinity = 0xFF800000u;

TANDEM_DEVICE bool IsFinite(float x) { return (FloatToBits(x) & kPlusInfinity) != kPlusInfinity; }

// All threads' values combined, in every thread; `combine` must not mind the order.
//   shared: [kWarpSize], free again behind this
template <typename T, typename Combine>
TANDEM_DEVICE T OfBlock(T value, uint64_t* shared, const Combine& combine) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a place for each warp");
  auto* const of_warps = reinterpret_cast<T*>(shared);
  TANDEM_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    value = combine(value, ShuffleXor(value, mask));
  }
  if (Lane() == 0) Store(of_warps + WarpIndex(), value);
  Barrier();
  value = Load(of_warps + Lane());
  TANDEM_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    value = combine(value, ShuffleXor(value, mask));
  }
  Barrier();
  return value;
}

// The largest of what was seen and its place, of equals the lowest. A NaN is one of +inf.
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

TANDEM_DEVICE Largest ShuffleXor(const Largest& largest, int mask) {
  const float value = ShuffleXor(largest.value, mask);
  return {value, ShuffleXor(largest.index, mask)};
}

TANDEM_DEVICE Largest LargestOfBlock(const Largest& largest, uint64_t* shared) {
  return OfBlock(largest, shared, [](Largest a, const Largest& b) {
    a.See(b.value, b.index);
    return a;
  });
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_BLOCK_MATH_CUH_
