// Probes of single instructions and of launches, written for a device alone (probes.cu). They have
// never run: tests/kernel_lab_test.py reads their machine code.
#ifndef TANDEM_TOOLS_KERNEL_LAB_PROBES_H_
#define TANDEM_TOOLS_KERNEL_LAB_PROBES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/operations.h"

namespace tandem::kernel_lab {

// Whether this build has probes.cu, instead of probes_absent.cc.
bool HasProbes();

enum class Probe {
  kMmaChain,        // first: independent chains of mma.sync in the warp (1, 2, 4)
  kWideChain,       // first: N of the chain of wgmma (8, 64, 128, 256)
  kSharedLatency,   // loads that depend on each other
  kL2Latency,       // first: whether other blocks read as well
  kCopyRing,        // cp.async; first: stages, second: bytes of a warp's stage
  kBulkRing,        // cp.async.bulk; the same
  kClusterBarrier,  // first: blocks of the cluster (2, 4, 8)
  kSharedAtomic,    // first: bits (32, 64), second: whether a warp's lanes add to one place
};

inline constexpr int kProbeThreads = 256;
// Warps of a ring's block, each with a ring of its own.
inline constexpr int kRingWarps = kProbeThreads / 32;

struct ProbeTask {
  Probe probe = Probe::kMmaChain;
  int first = 0;
  int second = 0;
  int num_blocks = 1;
  int num_steps = 0;            // of the timed loop, in each thread
  const void* data = nullptr;   // what rings and L2's load read; kL2Latency: the indices first
  size_t data_bytes = 0;        // a multiple of the blocks' stages
  uint32_t* flag = nullptr;     // 0; set when a loaded kL2Latency ends
  long long* cycles = nullptr;  // [blocks]: of the timed loop
  uint32_t* results = nullptr;  // [blocks]: the loop's result, without which it would be deleted
};
// Returns an error if there is no such probe.
cuda::Error Launch(const ProbeTask& task, cuda::Stream stream);

// Enqueues a kernel that does nothing; `early`: each may begin before the previous one ends.
cuda::Error LaunchNothing(bool early, cuda::Stream stream);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_PROBES_H_
