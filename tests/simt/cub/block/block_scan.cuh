// The host twin of CUB's BlockScan, as far as kernels use it, on the machine that checks them.
#ifndef TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_SCAN_CUH_
#define TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_SCAN_CUH_

#include "kernels/cuda/simt.h"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <typename T, int kBlockThreads, BlockScanAlgorithm = BLOCK_SCAN_RAKING>
class BlockScan {
 public:
  // Can be reused after a barrier. It is watched shared memory, so reuse without a barrier is a
  // race.
  struct alignas(32) TempStorage {  // the same as in CUB 3.0
    T of_warps[kBlockThreads / tandem::cuda::kWarpSize];
  };

  explicit BlockScan(TempStorage& storage,
                     const tandem::simt::Where& where = tandem::simt::Where::current())
      : storage_(storage), where_(where) {}

  // Returns the sum of the threads before this one, and of all threads.
  void ExclusiveSum(T value, T& before, T& all) {
    namespace device = tandem::cuda;
    const auto of_warp = [](const tandem::simt::LaneValues& given, tandem::simt::LaneValues* got) {
      T sum = 0;
      for (int i = 0; i < device::kWarpSize; ++i) {
        (*got)[i] = device::ToLane(sum);
        sum += device::FromLane<T>(given[i]);
      }
    };
    before = device::FromLane<T>(
        tandem::simt::Machine::Get().Collective(device::ToLane(value), where_, of_warp));
    const int warp = device::WarpIndex();
    if (device::Lane() == device::kWarpSize - 1)
      device::Store(&storage_.of_warps[warp], T(before + value), where_);
    device::Barrier(where_);
    all = 0;
    for (int i = 0; i < kBlockThreads / device::kWarpSize; ++i) {
      if (i == warp) before += all;
      all += device::Load(&storage_.of_warps[i], where_);
    }
  }

 private:
  TempStorage& storage_;
  tandem::simt::Where where_;
};

}  // namespace cub

#endif  // TANDEM_TESTS_SIMT_CUB_BLOCK_BLOCK_SCAN_CUH_
