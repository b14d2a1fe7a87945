// Probes in PTX, for Hopper (sm_90a). None has run; tests/kernel_lab_test.py reads the machine
// code: each kernel has the instruction that it times inside a loop.
#include <cuda_runtime_api.h>

#include "kernels/cuda/device_stream.h"
#include "tools/kernel_lab/bits.h"
#include "tools/kernel_lab/probes.h"

namespace tandem::kernel_lab {
namespace {

using cuda::Error;

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// ---- wgmma ----

__device__ __forceinline__ void WideFence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void WideCommitAndWait() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}
__device__ __forceinline__ void FenceForAsync() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// The descriptor of a matrix without swizzle whose 16 inputs of a row are in two core matrices of 8
// rows by 16 bytes: 128 bytes from the first to the second, 256 bytes to the next 8 rows.
__device__ __forceinline__ uint64_t DescriptorOf(const void* shared) {
  constexpr uint64_t kAlongInputs = 128 >> 4, kAlongRows = 256 >> 4;
  return (SharedAddress(shared) & 0x3FFFF) >> 4 | kAlongInputs << 16 | kAlongRows << 32;
}

// Lists of operands: sums %0 to %(n - 1).
#define LAB_TEN(tens)                                                                     \
  "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens \
  "6, "                                                                                   \
  "%" #tens "7, %" #tens "8, %" #tens "9, "
#define LAB_LIST_4 "%0, %1, %2, %3"
#define LAB_LIST_32 LAB_TEN() LAB_TEN(1) LAB_TEN(2) "%30, %31"
#define LAB_SIXTY LAB_TEN() LAB_TEN(1) LAB_TEN(2) LAB_TEN(3) LAB_TEN(4) LAB_TEN(5)
#define LAB_NEXT_SIXTY LAB_TEN(6) LAB_TEN(7) LAB_TEN(8) LAB_TEN(9) LAB_TEN(10) LAB_TEN(11)
#define LAB_LIST_64 LAB_SIXTY "%60, %61, %62, %63"
#define LAB_LIST_128 LAB_SIXTY LAB_NEXT_SIXTY "%120, %121, %122, %123, %124, %125, %126, %127"
#define LAB_SUMS_4(i) "+f"(sums[i]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3])
#define LAB_SUMS_16(i) LAB_SUMS_4(i), LAB_SUMS_4((i) + 4), LAB_SUMS_4((i) + 8), LAB_SUMS_4((i) + 12)
#define LAB_SUMS_32(i) LAB_SUMS_16(i), LAB_SUMS_16((i) + 16)
#define LAB_SUMS_64(i) LAB_SUMS_32(i), LAB_SUMS_32((i) + 32)
#define LAB_SUMS_128(i) LAB_SUMS_64(i), LAB_SUMS_64((i) + 64)

// One step with A from registers (operands a0 to a3), or from shared memory (a0), then the
// descriptor of B, and whether there are sums to add to.
#define LAB_WIDE_REGISTERS(n, count, a0, a1, a2, a3, b, adds)                           \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #adds                         \
               ", 0;\n"                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" #n                                   \
               "k16.f32.bf16.bf16 "                                                     \
               "{" LAB_LIST_##count "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b \
                                    ", adds, 1, 1, 0;\n}\n"                             \
               : LAB_SUMS_##count(0)                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "r"(add_to_sums))
#define LAB_WIDE_SHARED(n, count, a0, b, adds)                                     \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #adds                    \
               ", 0;\n"                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #n                              \
               "k16.f32.bf16.bf16 "                                                \
               "{" LAB_LIST_##count "}, %" #a0 ", %" #b ", adds, 1, 1, 0, 0;\n}\n" \
               : LAB_SUMS_##count(0)                                               \
               : "l"(a_at), "l"(b_at), "r"(add_to_sums))

// sums [kRows / 8][4]: as those of mma.sync for each 8 rows.
template <int kRows>
__device__ __forceinline__ void MultiplyWide(const uint32_t (&a)[4], uint64_t b_at, int add_to_sums,
                                             float (&sums)[kRows / 2]) {
  if constexpr (kRows == 8) {
    LAB_WIDE_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9);
  } else if constexpr (kRows == 64) {
    LAB_WIDE_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37);
  } else if constexpr (kRows == 128) {
    LAB_WIDE_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69);
  } else {
    LAB_WIDE_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133);
  }
}
template <int kRows>
__device__ __forceinline__ void MultiplyWideShared(uint64_t a_at, uint64_t b_at, int add_to_sums,
                                                   float (&sums)[kRows / 2]) {
  if constexpr (kRows == 8) {
    LAB_WIDE_SHARED(8, 4, 4, 5, 6);
  } else if constexpr (kRows == 64) {
    LAB_WIDE_SHARED(64, 32, 32, 33, 34);
  } else if constexpr (kRows == 128) {
    LAB_WIDE_SHARED(128, 64, 64, 65, 66);
  } else {
    LAB_WIDE_SHARED(256, 128, 128, 129, 130);
  }
}

constexpr int kWideThreads = 128;
constexpr int kWideOutputs = 64;

// Copies a step of plain rows, [rows, stride] of bf16, to core matrices.
__device__ __forceinline__ void CopyStep(const uint16_t* from, int64_t stride, int rows,
                                         unsigned char* to) {
  for (int i = threadIdx.x; i < rows * 2; i += kWideThreads) {
    const int row = i / 2, half = i % 2;
    *reinterpret_cast<uint4*>(to + row / 8 * 256 + half * 128 + row % 8 * 16) =
        *reinterpret_cast<const uint4*>(from + row * stride + half * 8);
  }
}

template <int kRows, bool kRegisters>
__global__ void __launch_bounds__(kWideThreads) WideBits(const WideChainTask task) {
  __shared__ __align__(1024) unsigned char a_tile[kWideOutputs * 32];
  __shared__ __align__(1024) unsigned char b_tile[kRows * 32];
  const int64_t stride = int64_t{task.num_steps} * 16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sums[kRows / 2];
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] = 0.0f;
  for (int step = 0; step < task.num_steps; ++step) {
    const auto* const a = static_cast<const uint16_t*>(task.a) + step * 16;
    CopyStep(a, stride, kWideOutputs, a_tile);
    CopyStep(static_cast<const uint16_t*>(task.b) + step * 16, stride, kRows, b_tile);
    FenceForAsync();
    __syncthreads();
    const int adds = step > 0 || !task.starts_without_sums;
    if constexpr (kRegisters) {
      uint32_t registers[4];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const int output = warp * 16 + lane / 4 + word % 2 * 8;
        const int input = lane % 4 * 2 + word / 2 * 8;
        registers[word] = *reinterpret_cast<const uint32_t*>(a + output * stride + input);
      }
      WideFence();  // after A's registers are written
      MultiplyWide<kRows>(registers, DescriptorOf(b_tile), adds, sums);
    } else {
      WideFence();
      MultiplyWideShared<kRows>(DescriptorOf(a_tile), DescriptorOf(b_tile), adds, sums);
    }
    WideCommitAndWait();
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) {
    task.sums[((warp * (kRows / 8) + i / 4) * 32 + lane) * 4 + i % 4] = sums[i];
  }
}

// ---- Latencies ----

// Ends a timed loop: stores the block's cycles and the loop's result.
__device__ __forceinline__ void Report(const ProbeTask& task, long long begin, uint32_t result) {
  const long long end = clock64();
  atomicXor(task.results + blockIdx.x, result);
  if (threadIdx.x == 0) task.cycles[blockIdx.x] = end - begin;
}

template <int kChains>
__global__ void __launch_bounds__(32) MmaChain(const ProbeTask task) {
  float sums[kChains][4];
  uint32_t a[4], b[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = static_cast<const uint32_t*>(task.data)[threadIdx.x * 4 + i];
#pragma unroll
  for (int i = 0; i < 2; ++i) b[i] = static_cast<const uint32_t*>(task.data)[256 + threadIdx.x + i];
#pragma unroll
  for (int c = 0; c < kChains; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[c][i] = static_cast<float>(c + i);
  }
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; step += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int c = 0; c < kChains; ++c) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
            : "+f"(sums[c][0]), "+f"(sums[c][1]), "+f"(sums[c][2]), "+f"(sums[c][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      }
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += sums[c][0] + sums[c][1] + sums[c][2] + sums[c][3];
  Report(task, begin, __float_as_uint(sum));
}

template <int kRows>
__global__ void __launch_bounds__(kWideThreads) WideChain(const ProbeTask task) {
  __shared__ __align__(1024) unsigned char b_tile[kRows * 32];
  CopyStep(static_cast<const uint16_t*>(task.data), 16, kRows, b_tile);
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = static_cast<const uint32_t*>(task.data)[threadIdx.x * 4 + i];
  float sums[kRows / 2];
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] = static_cast<float>(i);
  FenceForAsync();
  __syncthreads();
  const uint64_t b = DescriptorOf(b_tile);
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; step += 4) {
    WideFence();
#pragma unroll
    for (int i = 0; i < 4; ++i) MultiplyWide<kRows>(a, b, 1, sums);
    WideCommitAndWait();
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sum += sums[i];
  Report(task, begin, __float_as_uint(sum));
}

__global__ void __launch_bounds__(32) SharedLatency(const ProbeTask task) {
  __shared__ uint32_t next[1024];
  for (int i = threadIdx.x; i < 1024; i += 32) next[i] = SharedAddress(next + (i * 37 + 11) % 1024);
  __syncthreads();
  uint32_t at = SharedAddress(next);
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; step += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) asm volatile("ld.shared.u32 %0, [%0];\n" : "+r"(at));
  }
  Report(task, begin, at);
}

// Block 0 follows indices, each the place of the next one. The other blocks read the rest of the
// data until it has ended.
__global__ void __launch_bounds__(kProbeThreads) L2Latency(const ProbeTask task) {
  const auto* const indices = static_cast<const uint32_t*>(task.data);
  if (blockIdx.x > 0) {
    const int64_t count = static_cast<int64_t>(task.data_bytes / 16);
    const auto* const words = static_cast<const uint4*>(task.data);
    uint32_t sum = 0;
    const long long begin = clock64();
    for (int64_t at = int64_t{blockIdx.x} * kProbeThreads * 16;; at += kProbeThreads * 16) {
      const uint4* const from = words + (at + threadIdx.x) % count;
      uint4 read[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        read[i] = __ldcg(words + (from - words + i * kProbeThreads) % count);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum ^= read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
      if (*static_cast<volatile uint32_t*>(task.flag) != 0) break;
    }
    return Report(task, begin, sum);
  }
  if (threadIdx.x > 0) return;
  uint32_t at = 0;
  for (int step = 0; step < task.num_steps; ++step) at = __ldcg(indices + at);  // into L2
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; step += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) at = __ldcg(indices + at);
  }
  Report(task, begin, at);
  *static_cast<volatile uint32_t*>(task.flag) = 1;
}

// ---- Rings of copies from memory: each warp streams its part of the data ----

struct RingPart {
  const unsigned char* from;
  int num_stages;
};
template <int kStageBytes>
__device__ __forceinline__ RingPart PartOfWarp(const ProbeTask& task) {
  const int64_t warps = int64_t{gridDim.x} * kRingWarps;
  const int64_t warp = int64_t{blockIdx.x} * kRingWarps + threadIdx.x / 32;
  const auto num_stages =
      static_cast<int>(static_cast<int64_t>(task.data_bytes) / kStageBytes / warps);
  return {static_cast<const unsigned char*>(task.data) + warp * num_stages * kStageBytes,
          num_stages};
}

template <int kStageBytes>
__device__ __forceinline__ uint32_t SumOfStage(const unsigned char* stage) {
  uint32_t sum = 0;
#pragma unroll
  for (int at = 0; at < kStageBytes; at += 512) {
    const uint4 words = *reinterpret_cast<const uint4*>(stage + at + threadIdx.x % 32 * 16);
    sum ^= words.x ^ words.y ^ words.z ^ words.w;
  }
  return sum;
}

template <int kStages, int kStageBytes>
__global__ void __launch_bounds__(kProbeThreads) CopyRing(const ProbeTask task) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int lane = threadIdx.x % 32;
  unsigned char* const ring = shared + threadIdx.x / 32 * kStages * kStageBytes;
  const RingPart part = PartOfWarp<kStageBytes>(task);
  const auto copy = [&](int stage, int slot) {
    if (stage < part.num_stages) {
#pragma unroll
      for (int at = 0; at < kStageBytes; at += 512) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(
                         SharedAddress(ring + slot * kStageBytes + at + lane * 16)),
                     "l"(part.from + int64_t{stage} * kStageBytes + at + lane * 16)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;\n" ::: "memory");
  };
  const long long begin = clock64();
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, stage);
  uint32_t sum = 0;
  int slot = 0;
#pragma unroll 1
  for (int stage = 0; stage < part.num_stages; ++stage) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kStages - 2) : "memory");
    __syncwarp();
    copy(stage + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
    sum ^= SumOfStage<kStageBytes>(ring + slot * kStageBytes);
    slot = slot == kStages - 1 ? 0 : slot + 1;
  }
  __syncthreads();
  Report(task, begin, sum);
}

__device__ __forceinline__ void BulkCopy(uint32_t to, const void* from, int bytes,
                                         uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Waits for a phase, and traps after about a second.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, int parity) {
#pragma unroll 1
  for (int tries = 0; tries < (1 << 20); ++tries) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done != 0) return;
  }
  __trap();
}

template <int kStages, int kStageBytes>
__global__ void __launch_bounds__(kProbeThreads) BulkRing(const ProbeTask task) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(8) uint64_t barriers[kRingWarps][kStages];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned char* const ring = shared + warp * kStages * kStageBytes;
  const RingPart part = PartOfWarp<kStageBytes>(task);
  const uint32_t first_barrier = SharedAddress(barriers[warp]);
  if (lane < kStages) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n" ::"r"(first_barrier + lane * 8)
                 : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  __syncthreads();
  const auto copy = [&](int stage, int slot) {
    if (lane != 0 || stage >= part.num_stages) return;
    BulkCopy(SharedAddress(ring + slot * kStageBytes), part.from + int64_t{stage} * kStageBytes,
             kStageBytes, first_barrier + slot * 8);
  };
  const long long begin = clock64();
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, stage);
  uint32_t sum = 0;
  int slot = 0, parity = 0;
#pragma unroll 1
  for (int stage = 0; stage < part.num_stages; ++stage) {
    WaitForPhase(first_barrier + slot * 8, parity);
    __syncwarp();
    copy(stage + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
    sum ^= SumOfStage<kStageBytes>(ring + slot * kStageBytes);
    slot = slot == kStages - 1 ? 0 : slot + 1;
    parity ^= slot == 0;
  }
  __syncthreads();
  Report(task, begin, sum);
}

// ---- Barriers, atomics, launches ----

__global__ void __launch_bounds__(kProbeThreads) ClusterBarrier(const ProbeTask task) {
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; ++step) {
    asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
  }
  Report(task, begin, threadIdx.x);
}

template <typename T>
__global__ void __launch_bounds__(kProbeThreads) SharedAtomic(const ProbeTask task) {
  __shared__ T sums[kProbeThreads];
  sums[threadIdx.x] = 0;
  __syncthreads();
  T* const to = sums + (task.second != 0 ? threadIdx.x / 32 * 32 : threadIdx.x);
  const long long begin = clock64();
#pragma unroll 1
  for (int step = 0; step < task.num_steps; ++step) {
    atomicAdd(to, static_cast<T>(step + threadIdx.x));
  }
  __syncthreads();
  Report(task, begin, static_cast<uint32_t>(sums[threadIdx.x]));
}

__global__ void __launch_bounds__(32) NothingAfterAll() {}
__global__ void __launch_bounds__(32) NothingEarly() {
  asm volatile("griddepcontrol.launch_dependents;\n");
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

struct How {
  int blocks = 1;
  int threads = kProbeThreads;
  int shared_bytes = 0;
  int cluster = 1;
  bool early = false;
};

template <typename... Parameters, typename... Arguments>
Error Enqueue(cuda::Stream stream, const How& how, void (*kernel)(Parameters...),
              const Arguments&... arguments) {
  cudaError_t error = cudaSetDevice(cuda::Of(stream).device);
  if (error == cudaSuccess && how.shared_bytes > 0) {
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, how.shared_bytes);
  }
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (how.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = how.cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (how.early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(how.blocks);
  config.blockDim = dim3(how.threads);
  config.dynamicSmemBytes = how.shared_bytes;
  config.stream = cuda::Of(stream).stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

constexpr Error kNoSuchProbe = cudaErrorInvalidValue;

template <int kStages, int kStageBytes>
Error EnqueueRing(const ProbeTask& task, cuda::Stream stream) {
  const How how = {.blocks = task.num_blocks,
                   .threads = kProbeThreads,
                   .shared_bytes = kRingWarps * kStages * kStageBytes};
  return Enqueue(stream, how,
                 task.probe == Probe::kCopyRing ? CopyRing<kStages, kStageBytes>
                                                : BulkRing<kStages, kStageBytes>,
                 task);
}

Error LaunchRing(const ProbeTask& task, cuda::Stream stream) {
  switch (task.first * 10000 + task.second) {
    case 21024:
      return EnqueueRing<2, 1024>(task, stream);
    case 41024:
      return EnqueueRing<4, 1024>(task, stream);
    case 81024:
      return EnqueueRing<8, 1024>(task, stream);
    case 161024:
      return EnqueueRing<16, 1024>(task, stream);
    case 42048:
      return EnqueueRing<4, 2048>(task, stream);
    case 82048:
      return EnqueueRing<8, 2048>(task, stream);
    case 24096:
      return EnqueueRing<2, 4096>(task, stream);
    case 44096:
      return EnqueueRing<4, 4096>(task, stream);
    default:
      return kNoSuchProbe;
  }
}

template <int kRows>
Error EnqueueWide(const WideChainTask& task, cuda::Stream stream) {
  return Enqueue(stream, {.blocks = 1, .threads = kWideThreads},
                 task.a_from_registers ? WideBits<kRows, true> : WideBits<kRows, false>, task);
}

}  // namespace

bool HasProbes() { return true; }

Error Launch(const WideChainTask& task, cuda::Stream stream) {
  switch (task.rows) {
    case 8:
      return EnqueueWide<8>(task, stream);
    case 64:
      return EnqueueWide<64>(task, stream);
    case 128:
      return EnqueueWide<128>(task, stream);
    case 256:
      return EnqueueWide<256>(task, stream);
    default:
      return kNoSuchProbe;
  }
}

Error Launch(const ProbeTask& task, cuda::Stream stream) {
  const How one_warp = {.blocks = task.num_blocks, .threads = 32};
  const How wide = {.blocks = task.num_blocks, .threads = kWideThreads};
  const How usual = {.blocks = task.num_blocks, .threads = kProbeThreads};
  switch (task.probe) {
    case Probe::kMmaChain:
      return Enqueue(stream, one_warp,
                     task.first == 1   ? MmaChain<1>
                     : task.first == 2 ? MmaChain<2>
                                       : MmaChain<4>,
                     task);
    case Probe::kWideChain:
      return Enqueue(stream, wide,
                     task.first == 8     ? WideChain<8>
                     : task.first == 64  ? WideChain<64>
                     : task.first == 128 ? WideChain<128>
                                         : WideChain<256>,
                     task);
    case Probe::kSharedLatency:
      return Enqueue(stream, one_warp, SharedLatency, task);
    case Probe::kL2Latency:
      return Enqueue(stream, usual, L2Latency, task);
    case Probe::kCopyRing:
    case Probe::kBulkRing:
      return LaunchRing(task, stream);
    case Probe::kClusterBarrier:
      return Enqueue(stream,
                     {.blocks = task.num_blocks, .threads = kProbeThreads, .cluster = task.first},
                     ClusterBarrier, task);
    case Probe::kSharedAtomic:
      return Enqueue(stream, usual,
                     task.first == 32 ? SharedAtomic<uint32_t> : SharedAtomic<unsigned long long>,
                     task);
  }
  return kNoSuchProbe;
}

Error LaunchNothing(bool early, cuda::Stream stream) {
  const How how = {.blocks = 1, .threads = 32, .early = early};
  return Enqueue(stream, how, early ? NothingEarly : NothingAfterAll);
}

}  // namespace tandem::kernel_lab
