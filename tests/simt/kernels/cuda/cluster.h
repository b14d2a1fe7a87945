// The host twin of kernels/cuda/cluster.h.
#ifndef TANDEM_TESTS_SIMT_KERNELS_CUDA_CLUSTER_H_
#define TANDEM_TESTS_SIMT_KERNELS_CUDA_CLUSTER_H_

#include "tests/simt/kernels/cuda/simt.h"
#include "tests/simt/machine.h"

namespace tandem::cuda {

inline int ClusterRank() { return simt::Machine::Get().cluster_rank(); }
inline void ClusterBarrier(const Where& where = Where::current()) {
  simt::Machine::Get().ClusterBarrier(where);
}
inline void ArriveAtBlock(int rank, PhaseBarrier* barrier, const Where& where = Where::current()) {
  simt::Machine::Get().ArriveAtBlock(rank, barrier, where);
}
inline void WaitForPhaseOfCluster(PhaseBarrier* barrier, int parity,
                                  const Where& where = Where::current()) {
  simt::Machine::Get().WaitForPhase(barrier, parity, true, where);
}
inline void CopyToBlocksByWarp(uint32_t ranks, void* shared, const void* global, int bytes,
                               PhaseBarrier* barrier, const Where& where = Where::current()) {
  if (Lane() != 0) return;
  simt::Machine::Get().BulkCopyToBlocks(ranks, shared, global, bytes, barrier, where);
}

}  // namespace tandem::cuda

#endif  // TANDEM_TESTS_SIMT_KERNELS_CUDA_CLUSTER_H_
