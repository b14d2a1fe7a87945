// Clusters: adjacent blocks that run at the same time and reach each other's shared memory
// (LaunchShape::cluster). Included by simt.h. Devices before Hopper have none, so a kernel that
// uses these functions is one for warpgroups (warpgroup.h).
#ifndef TANDEM_KERNELS_CUDA_CLUSTER_H_
#define TANDEM_KERNELS_CUDA_CLUSTER_H_

namespace tandem::cuda {

// The index of this block in its cluster.
TANDEM_DEVICE int ClusterRank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// Orders the earlier memory accesses of a cluster before the later ones. All threads of all its
// blocks call it. Before a block's memory is used by others, they must know of its barriers; and
// it must not end until they have used it, so kernels begin and end with this.
TANDEM_DEVICE void ClusterBarrier() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;\n" ::
          : "memory");
}

// Arrives at the barrier at the same place in the shared memory of block `rank`, which waits with
// WaitForPhaseOfCluster.
TANDEM_DEVICE void ArriveAtBlock(int rank, PhaseBarrier* barrier) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}\n" ::"r"(
          SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}
// As WaitForPhase, for a barrier at which threads of other blocks arrive.
TANDEM_DEVICE void WaitForPhaseOfCluster(PhaseBarrier* barrier, int parity) {
  uint32_t has_ended = 0;
  do {
    asm volatile(
        "{\n.reg .pred ended;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n}\n"
        : "=r"(has_ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (has_ended == 0);
}

// As CopyByWarp, to the same place of each block of `ranks`, a bit for each. The bytes count for
// the barrier at the same place in each, whose blocks must all expect them.
TANDEM_DEVICE void CopyToBlocksByWarp(uint32_t ranks, void* shared, const void* global, int bytes,
                                      PhaseBarrier* barrier) {
  if (Lane() != 0) return;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;\n" ::"r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier)), "h"(static_cast<uint16_t>(ranks))
      : "memory");
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CLUSTER_H_
