// The host twin of CUB's BlockReduce, as far as kernels use it, on the machine that checks them.
#ifndef TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_REDUCE_CUH_
#define TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_REDUCE_CUH_

#include <cstring>

#include "kernels/cuda/simt.h"

namespace cub {

template <typename T, int kBlockThreads>
class BlockReduce {
 public:
  // Can be reused after a barrier. It is watched shared memory, so reuse without a barrier is a
  // race.
  struct TempStorage {
    T of_warps[kBlockThreads / tandem::cuda::kWarpSize];
  };

  explicit BlockReduce(TempStorage& storage,
                       const tandem::simt::Where& where = tandem::simt::Where::current())
      : storage_(storage), where_(where) {}

  // Combines all threads' values from the last to the first, because CUB does not promise an order.
  // Thread 0 gets the result; the others get a value of all one bits.
  template <typename Combine>
  T Reduce(T value, Combine combine) {
    namespace device = tandem::cuda;
    const auto of_warp = [&combine](const tandem::simt::LaneValues& given,
                                    tandem::simt::LaneValues* got) {
      T all = device::FromLane<T>(given[device::kWarpSize - 1]);
      for (int i = device::kWarpSize - 2; i >= 0; --i)
        all = combine(all, device::FromLane<T>(given[i]));
      (*got)[0] = device::ToLane(all);
    };
    value = device::FromLane<T>(
        tandem::simt::Machine::Get().Collective(device::ToLane(value), where_, of_warp));
    if (device::Lane() == 0) device::Store(&storage_.of_warps[device::WarpIndex()], value, where_);
    device::Barrier(where_);
    std::memset(static_cast<void*>(&value), 0xFF, sizeof(T));
    if (device::ThreadIndex() > 0) return value;
    constexpr int kWarps = kBlockThreads / device::kWarpSize;
    value = device::Load(&storage_.of_warps[kWarps - 1], where_);
    for (int i = kWarps - 2; i >= 0; --i) {
      value = combine(value, device::Load(&storage_.of_warps[i], where_));
    }
    return value;
  }

 private:
  TempStorage& storage_;
  tandem::simt::Where where_;
};

}  // namespace cub

#endif  // TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_REDUCE_CUH_
