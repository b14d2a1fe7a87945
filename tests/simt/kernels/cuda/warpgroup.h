// The host twin of kernels/cuda/warpgroup.h (tests/simt/warpgroups.h).
#ifndef TANDEM_TESTS_SIMT_KERNELS_CUDA_WARPGROUP_H_
#define TANDEM_TESTS_SIMT_KERNELS_CUDA_WARPGROUP_H_

#include <cstdint>

#include "tests/simt/kernels/cuda/simt.h"
#include "tests/simt/machine.h"

namespace tandem::cuda {

inline constexpr int kWarpgroupThreads = 128;

struct SharedRows {
  uint64_t descriptor;  // the address
};
inline SharedRows RowsAt(const void* shared) { return {reinterpret_cast<uintptr_t>(shared)}; }
inline SharedRows FromInput(SharedRows rows, int input) {
  return {rows.descriptor + static_cast<uint64_t>(input) * sizeof(uint16_t)};
}

template <int kRowTiles, int kCount>
void FenceRegisters(float (&sums)[kRowTiles][4], Words4 (&a)[kCount]) {
  simt::Machine::Get().warpgroups().Fence(ThreadIndex(), sums[0], kRowTiles, a, kCount);
}
template <int kRowTiles>
void MultiplyRowsAsync(const Words4& a, SharedRows rows, float (&sums)[kRowTiles][4],
                       const Where& where = Where::current()) {
  static_assert(kRowTiles == 8 || kRowTiles == 16 || kRowTiles == 24 || kRowTiles == 32);
  simt::Machine::Get().warpgroups().Multiply(ThreadIndex(), &a, rows.descriptor, sums[0], kRowTiles,
                                             where);
}
inline void MultiplyCommit() { simt::Machine::Get().warpgroups().Commit(ThreadIndex()); }
template <int kLeft>
void MultiplyWait(const Where& where = Where::current()) {
  simt::Machine::Get().warpgroups().Wait(ThreadIndex(), kLeft, where);
}
template <int kRowTiles>
void MultiplyWaitForAll(float (&)[kRowTiles][4], const Where& where = Where::current()) {
  MultiplyWait<0>(where);
}

template <int kCount>
void LowerRegisters(const Where& where = Where::current()) {
  simt::Machine::Get().warpgroups().SetRegisters(ThreadIndex(), kCount, false, where);
}
template <int kCount>
void RaiseRegisters(const Where& where = Where::current()) {
  simt::Machine::Get().warpgroups().SetRegisters(ThreadIndex(), kCount, true, where);
}

}  // namespace tandem::cuda

#endif  // TANDEM_TESTS_SIMT_KERNELS_CUDA_WARPGROUP_H_
