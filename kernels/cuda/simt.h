// The device functions that kernels use: thread indices, barriers, shuffles, memory, asynchronous
// copies and tensor cores. Kernels use only these names, so the twin of this header in tests/simt/
// can run the same kernels on the host and check what they do.
//
// Every memory access goes through Load and Store, whose pointers are to elements of 2, 4, 8 or 16
// bytes, aligned to their size. All threads of a warp (or block) must call a collective at the same
// place.
#ifndef TANDEM_KERNELS_CUDA_SIMT_H_
#define TANDEM_KERNELS_CUDA_SIMT_H_

#include <cstdint>
#include <nv/target>
#include <type_traits>

#include "kernels/cuda/device_stream.h"

// A function that kernels call.
#define TANDEM_DEVICE __device__ __forceinline__
#define TANDEM_PRAGMA(text) _Pragma(#text)
#define TANDEM_UNROLL TANDEM_PRAGMA(unroll)
#define TANDEM_UNROLL_BY(count) TANDEM_PRAGMA(unroll count)

namespace tandem::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

TANDEM_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
TANDEM_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
TANDEM_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
TANDEM_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }
TANDEM_DEVICE int WarpIndex() { return ThreadIndex() / kWarpSize; }
TANDEM_DEVICE int Lane() { return ThreadIndex() % kWarpSize; }

// Barriers: order the earlier memory accesses of a block, or of a warp, before the later ones.
TANDEM_DEVICE void Barrier() { __syncthreads(); }
TANDEM_DEVICE void SyncWarp() { __syncwarp(); }

// Waits until the kernels before this one have ended. A kernel may begin while they still run, if
// the device supports that, so every thread of every kernel calls this. Before the call, a kernel
// may only read memory that kernels never write, such as weights.
TANDEM_DEVICE void WaitForKernelsBefore() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;\n" ::: "memory");))
}
// Lets the next kernel begin once all blocks of this one run.
TANDEM_DEVICE void LetNextKernelBegin() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;\n");))
}

// Returns the value of the lane whose index differs in the bits of `mask`.
template <typename T>
TANDEM_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(kWholeWarp, value, mask);
}
// Returns the value of lane `lane`.
template <typename T>
TANDEM_DEVICE T ShuffleFrom(T value, int lane) {
  return __shfl_sync(kWholeWarp, value, lane);
}
// Bit i says whether lane i's condition holds.
TANDEM_DEVICE uint32_t Vote(bool condition) { return __ballot_sync(kWholeWarp, condition); }

// Returns the sum of all lanes' values, modulo 2^32.
TANDEM_DEVICE uint32_t SumOfLanes(uint32_t value) { return __reduce_add_sync(kWholeWarp, value); }
// Returns the number of bits that are 1.
TANDEM_DEVICE int NumOnes(uint32_t bits) { return __popc(bits); }

// ---- Memory ----

struct alignas(8) Words2 {
  uint32_t words[2];
};
struct alignas(16) Words4 {
  uint32_t words[4];
};

template <typename T>
TANDEM_DEVICE T Load(const T* from) {
  return *from;
}
template <typename T>
TANDEM_DEVICE void Store(T* to, T value) {
  *to = value;
}

// Adds to memory that other threads add to as well, and returns the number before. The order of
// such sums is not fixed.
TANDEM_DEVICE uint32_t AtomicAdd(uint32_t* to, uint32_t value) { return atomicAdd(to, value); }

// Adds to a counter of the device and returns the number before. What this thread did, and what
// its block did before a barrier, comes before what threads do that add to the counter later. So
// the last block of a group may read what the others wrote.
TANDEM_DEVICE uint32_t CountInOrder(uint32_t* counter, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;\n"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
}

TANDEM_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// Starts to copy 16 bytes from global to shared memory, bypassing the L1 cache. This thread may
// read them once CopyWait has waited for the copy's group; other threads may read them after a
// later barrier.
TANDEM_DEVICE void CopyAsync16(void* shared, const void* global) {
  const uint32_t to = SharedAddress(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
}
// The same for 4 bytes, through the L1 cache.
TANDEM_DEVICE void CopyAsync4(void* shared, const void* global) {
  const uint32_t to = SharedAddress(shared);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(global) : "memory");
}
// Ends a group of copies.
TANDEM_DEVICE void CopyCommit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits for all groups of this thread except the last kLeft.
template <int kLeft>
TANDEM_DEVICE void CopyWait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft) : "memory");
}

// ---- Phase barriers and bulk copies ----

// A barrier in shared memory that some threads arrive at and others wait for (an mbarrier). Its
// phases follow each other: a phase ends when all its arrivals, and the bytes of the copies that
// they expect, have come. The first phase has parity 0, the next one 1, then 0 again.
struct alignas(8) PhaseBarrier {
  uint64_t bits;
};
// One thread initialises a barrier, and calls FencePhases after the last one. Other threads may use
// them after a barrier of the block.
TANDEM_DEVICE void InitPhases(PhaseBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
TANDEM_DEVICE void FencePhases() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("fence.mbarrier_init.release.cluster;\n" ::
                                                    : "memory");))
}
// Threads that have waited for this phase see everything that this thread did before.
TANDEM_DEVICE void Arrive(PhaseBarrier* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(
                   SharedAddress(barrier))
               : "memory");
}
// Waits until the phase of this parity has ended. At most one phase may end meanwhile.
TANDEM_DEVICE void WaitForPhase(PhaseBarrier* barrier, int parity) {
  uint32_t has_ended = 0;
  do {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                      (asm volatile("{\n.reg .pred ended;\n"
                                    "mbarrier.try_wait.parity.shared.b64 ended, [%1], %2;\n"
                                    "selp.u32 %0, 1, 0, ended;\n}\n"
                                    : "=r"(has_ended)
                                    : "r"(SharedAddress(barrier)), "r"(parity)
                                    : "memory");),
                      (asm volatile("{\n.reg .pred ended;\n"
                                    "mbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n"
                                    "selp.u32 %0, 1, 0, ended;\n}\n"
                                    : "=r"(has_ended)
                                    : "r"(SharedAddress(barrier)), "r"(parity)
                                    : "memory");))
  } while (has_ended == 0);
}

// Copies by a warp from global to shared memory, in multiples of 16 bytes, aligned to 16: for each
// phase of `barrier`, ExpectCopies with the bytes of all copies, the copies, EndCopies. Threads
// that have waited for the phase may read the bytes. The barrier has CopyArrivals() arrivals. From
// compute capability 9.0 on, one lane issues bulk copies; before, each lane copies its part.
TANDEM_DEVICE int CopyArrivals() {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (return 1;), (return kWarpSize;))
}
TANDEM_DEVICE void ExpectCopies(PhaseBarrier* barrier, int bytes) {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (if (Lane() == 0) {
                 asm volatile(
                     "{\n.reg .b64 state;\n"
                     "mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}\n" ::"r"(
                         SharedAddress(barrier)),
                     "r"(bytes)
                     : "memory");
               }))
}
TANDEM_DEVICE void CopyByWarp(void* shared, const void* global, int bytes, PhaseBarrier* barrier) {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (if (Lane() == 0) {
                      asm volatile(
                          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                          "[%0], [%1], %2, [%3];\n" ::"r"(SharedAddress(shared)),
                          "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
                          : "memory");
                    }),
                    (for (int at = 16 * Lane(); at < bytes; at += 16 * kWarpSize) {
                      CopyAsync16(static_cast<unsigned char*>(shared) + at,
                                  static_cast<const unsigned char*>(global) + at);
                    }))
}
TANDEM_DEVICE void EndCopies(PhaseBarrier* barrier) {
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90, (),
                    (asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(
                                      SharedAddress(barrier))
                                  : "memory");))
}
// Orders this thread's earlier accesses to shared memory before later bulk copies, and before
// products that read shared memory themselves.
TANDEM_DEVICE void FenceBulkCopies() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");))
}

// Loads four matrices of 8 rows of 16 bytes from shared memory: lane i gives the address of row
// i % 8 of matrix i / 8. Word m of lane l is part l % 4 (4 bytes) of row l / 4 of matrix m.
TANDEM_DEVICE Words4 LoadMatrices(const void* row) {
  Words4 words;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.words[0]), "=r"(words.words[1]), "=r"(words.words[2]),
                 "=r"(words.words[3])
               : "r"(SharedAddress(row))
               : "memory");
  return words;
}

// ---- Arithmetic ----

TANDEM_DEVICE float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
TANDEM_DEVICE uint32_t FloatToBits(float value) { return __float_as_uint(value); }
// Rounds once. Written as a * b + c, it would round twice.
TANDEM_DEVICE float MulAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
TANDEM_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }
TANDEM_DEVICE float Larger(float a, float b) { return fmaxf(a, b); }
TANDEM_DEVICE float Exponential(float x) { return expf(x); }
TANDEM_DEVICE float HyperbolicTangent(float x) { return tanhf(x); }
TANDEM_DEVICE float Cosine(float x) { return cosf(x); }
TANDEM_DEVICE float Sine(float x) { return sinf(x); }

// Rounds to the nearest integer, ties to even.
TANDEM_DEVICE int RoundToWhole(float x) { return __float2int_rn(x); }

// Converts the f16 in the low half of `bits`.
TANDEM_DEVICE float F16ToFloat(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;\n" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}

// Rounds two numbers to bf16, to nearest even, with `low` in the low half.
TANDEM_DEVICE uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Selects four of the eight bytes of `low` and `high`: half-byte i < 4 of `which`, from 0 to 7, is
// the index of the source of byte i.
TANDEM_DEVICE uint32_t SelectBytes(uint32_t low, uint32_t high, uint32_t which) {
  return __byte_perm(low, high, which);
}

// sums += a * b by one warp: a [16, 16] and b [16, 8] of bf16, sums [16, 8]. With g = lane / 4 and
// t = lane % 4, and two numbers per word in increasing k:
//   a[0] at (g, 2t), a[1] at (g + 8, 2t), a[2] at (g, 2t + 8), a[3] at (g + 8, 2t + 8)
//   b[0] at (2t, g), b[1] at (2t + 8, g)
//   sums[0], sums[1] at (g, 2t), (g, 2t + 1), sums[2], sums[3] at (g + 8, 2t), (g + 8, 2t + 1)
// Element (m, n) depends only on row m of a and column n of b.
TANDEM_DEVICE void MultiplyTile(const Words4& a, const uint32_t (&b)[2], float (&sums)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b[0]), "r"(b[1]));
}

// The same for integers: sums = first + a * b, with a [16, 32] of unsigned bytes, b [32, 8] of
// signed bytes, and exact sums of 32 bits. Four numbers per word:
//   a[0] at (g, 4t), a[1] at (g + 8, 4t), a[2] at (g, 4t + 16), a[3] at (g + 8, 4t + 16)
//   b[0] at (4t, g), b[1] at (4t + 16, g)
//   first[0] of column 2t, first[1] of column 2t + 1
TANDEM_DEVICE void MultiplyWholeTile(const Words4& a, const uint32_t (&b)[2],
                                     const uint32_t (&first)[2], uint32_t (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %10, %11};\n"
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b[0]), "r"(b[1]),
        "r"(first[0]), "r"(first[1]));
}
// The same for only the k below 16 (half 0) or from 16 on (half 1).
TANDEM_DEVICE void MultiplyHalfTile(const Words4& a, const uint32_t (&b)[2], int half,
                                    const uint32_t (&first)[2], uint32_t (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %7, %8};\n"
      : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
      : "r"(a.words[2 * half]), "r"(a.words[2 * half + 1]), "r"(b[half]), "r"(first[0]),
        "r"(first[1]));
}

}  // namespace tandem::cuda

#include "kernels/cuda/cluster.h"
#include "kernels/cuda/warpgroup.h"

namespace tandem::cuda {

// ---- Launching ----

// Hides from the compiler how the address of shared memory is computed. It would compute it from a
// special register again wherever it is used, in main loops too.
__device__ __forceinline__ unsigned char* ComputedOnce(unsigned char* shared) {
  auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("" : "+r"(at));
  return static_cast<unsigned char*>(__cvta_shared_to_generic(at));
}

// The blocks of a kernel that must fit into the registers of a multiprocessor; 0: any number.
template <typename Kernel, typename = void>
inline constexpr int kLeastBlocks = 0;
template <typename Kernel>
inline constexpr int kLeastBlocks<Kernel, std::void_t<decltype(Kernel::kBlocks)>> = Kernel::kBlocks;
// Whether a kernel uses warpgroups. Its code is empty for devices without them.
template <typename Kernel, typename = void>
inline constexpr bool kForWarpgroups = false;
template <typename Kernel>
inline constexpr bool kForWarpgroups<Kernel, std::enable_if_t<Kernel::kUsesWarpgroups>> = true;

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, kLeastBlocks<Kernel>)
    Enter(const typename Kernel::Task task) {
  extern __shared__ __align__(kSharedAlignment) unsigned char shared[];
  LetNextKernelBegin();
  if constexpr (kForWarpgroups<Kernel>) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a, (Kernel::Run(task, ComputedOnce(shared));))
  } else {
    Kernel::Run(task, ComputedOnce(shared));
  }
}

// Sets `has` to whether the device has code of a kernel for warpgroups that is not empty.
template <typename Kernel>
Error HasCode(Stream stream, bool* has) {
  *has = false;
  if (LostOf(Of(stream)) != kNoError) return LostOf(Of(stream));
  cudaError_t error = cudaSetDevice(Of(stream).device);
  cudaFuncAttributes code = {};
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&code, Enter<Kernel>);
  constexpr int kMostOfEmptyCode = 32;
  *has = error == cudaSuccess && code.numRegs > kMostOfEmptyCode;
  return error;
}

// Sets `may` to whether the kernel may begin before the kernels before it have ended: its code must
// wait for them. Code that was compiled for older devices does not.
template <typename Kernel>
cudaError_t MayBeginEarly(const DeviceStream& stream, bool* may) {
  *may = false;
  if (!stream.overlaps_kernels) return cudaSuccess;
  cudaFuncAttributes code = {};
  const cudaError_t error = cudaFuncGetAttributes(&code, Enter<Kernel>);
  *may = error == cudaSuccess && code.ptxVersion >= 90;
  return error;
}

// Enqueues Kernel::Run(task, shared) for every thread of `shape`.
template <typename Kernel>
Error Enqueue(const typename Kernel::Task& task, const LaunchShape& shape, Stream stream) {
  if (shape.num_blocks() == 0) return kNoError;
  if (!shape.fits()) return kGridTooLarge;
  if (LostOf(Of(stream)) != kNoError) return LostOf(Of(stream));
  cudaError_t error = cudaSetDevice(Of(stream).device);
  constexpr int kWithoutAsking = 48 * 1024;
  if (error == cudaSuccess && shape.shared_bytes > kWithoutAsking) {
    error = cudaFuncSetAttribute(Enter<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 shape.shared_bytes);
  }
  // All kernels ask for the same division of a multiprocessor's memory, because one with another
  // division waits until the blocks there have ended.
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(Enter<Kernel>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  bool may_begin_early = false;
  if (error == cudaSuccess) error = MayBeginEarly<Kernel>(Of(stream), &may_begin_early);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  if (may_begin_early) {
    cudaLaunchAttribute& early = attributes[num_attributes++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[num_attributes++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.x, shape.y, shape.z);
  config.blockDim = dim3(NumThreads<Kernel>(shape));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = Of(stream).stream;
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  return cudaLaunchKernelEx(&config, Enter<Kernel>, task);
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_SIMT_H_
