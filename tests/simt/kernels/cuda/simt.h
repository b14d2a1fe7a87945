// The host twin of kernels/cuda/simt.h, with the same names and with checked accesses
// (tests/simt/machine.h). Code that finds it first in its include path runs kernels on the host.
#ifndef TANDEM_TESTS_SIMT_KERNELS_CUDA_SIMT_H_
#define TANDEM_TESTS_SIMT_KERNELS_CUDA_SIMT_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "base/float16.h"
#include "kernels/cuda/operations.h"
#include "tests/simt/launches.h"
#include "tests/simt/machine.h"

#define TANDEM_DEVICE inline
#define TANDEM_UNROLL
#define TANDEM_UNROLL_BY(count)

namespace tandem::cuda {

using simt::Where;

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

inline int ThreadIndex() { return simt::Machine::Get().thread(); }
inline int BlockX() { return simt::Machine::Get().block()[0]; }
inline int BlockY() { return simt::Machine::Get().block()[1]; }
inline int BlockZ() { return simt::Machine::Get().block()[2]; }
inline int WarpIndex() { return ThreadIndex() / kWarpSize; }
inline int Lane() { return ThreadIndex() % kWarpSize; }

template <typename T>
simt::LaneValue ToLane(const T& value) {
  static_assert(sizeof(T) <= sizeof(simt::LaneValue));
  simt::LaneValue lane = {};
  std::memcpy(lane.bytes, &value, sizeof(T));
  return lane;
}
template <typename T>
T FromLane(const simt::LaneValue& lane) {
  T value;
  std::memcpy(&value, lane.bytes, sizeof(T));
  return value;
}

inline void Barrier(const Where& where = Where::current()) { simt::Machine::Get().Barrier(where); }
inline void SyncWarp(const Where& where = Where::current()) {
  simt::Machine::Get().Collective(
      {}, where, [](const auto&, auto*) {}, true);
}

inline void WaitForKernelsBefore() { simt::Machine::Get().WaitForKernelsBefore(); }

template <typename T>
T ShuffleXor(T value, int mask, const Where& where = Where::current()) {
  return FromLane<T>(simt::Machine::Get().Collective(
      ToLane(value), where, [mask](const simt::LaneValues& given, simt::LaneValues* got) {
        for (int lane = 0; lane < kWarpSize; ++lane) (*got)[lane] = given[lane ^ mask];
      }));
}
template <typename T>
T ShuffleFrom(T value, int source, const Where& where = Where::current()) {
  return FromLane<T>(simt::Machine::Get().Collective(
      ToLane(value), where, [source](const simt::LaneValues& given, simt::LaneValues* got) {
        for (simt::LaneValue& value : *got) value = given[source];
      }));
}
inline uint32_t Vote(bool condition, const Where& where = Where::current()) {
  return FromLane<uint32_t>(simt::Machine::Get().Collective(
      ToLane(condition), where, [](const simt::LaneValues& given, simt::LaneValues* got) {
        uint32_t votes = 0;
        for (int i = 0; i < kWarpSize; ++i) votes |= uint32_t{FromLane<bool>(given[i])} << i;
        for (simt::LaneValue& value : *got) value = ToLane(votes);
      }));
}

inline uint32_t SumOfLanes(uint32_t value, const Where& where = Where::current()) {
  return FromLane<uint32_t>(simt::Machine::Get().Collective(
      ToLane(value), where, [](const simt::LaneValues& given, simt::LaneValues* got) {
        uint32_t sum = 0;
        for (const simt::LaneValue& value : given) sum += FromLane<uint32_t>(value);
        for (simt::LaneValue& value : *got) value = ToLane(sum);
      }));
}
inline int NumOnes(uint32_t bits) { return std::popcount(bits); }

// ---- Memory ----

struct alignas(8) Words2 {
  uint32_t words[2];
};
struct alignas(16) Words4 {
  uint32_t words[4];
};

template <typename T>
T Load(const T* from, const Where& where = Where::current()) {
  T value = {};
  if (simt::Machine::Get().Access(from, sizeof(T), simt::AccessKind::kRead, where)) {
    std::memcpy(&value, from, sizeof(T));
  }
  return value;
}
template <typename T>
void Store(T* to, T value, const Where& where = Where::current()) {
  if constexpr (sizeof(T) == sizeof(uint32_t)) {
    if (std::bit_cast<uint32_t>(value) == simt::kUnfinished) {
      return simt::Machine::Get().Fault("stores a sum of an unfinished product", where);
    }
  }
  if (simt::Machine::Get().Access(to, sizeof(T), simt::AccessKind::kWrite, where)) {
    std::memcpy(to, &value, sizeof(T));
  }
}

inline uint32_t AtomicAdd(uint32_t* to, uint32_t value, const Where& where = Where::current()) {
  if (!simt::Machine::Get().Access(to, sizeof(value), simt::AccessKind::kAtomic, where)) return 0;
  return std::exchange(*to, *to + value);
}

inline uint32_t CountInOrder(uint32_t* counter, uint32_t value,
                             const Where& where = Where::current()) {
  return simt::Machine::Get().Count(counter, value, where);
}

inline void CopyAsync16(void* shared, const void* global, const Where& where = Where::current()) {
  simt::Machine::Get().CopyAsync(shared, global, 16, where);
}
inline void CopyAsync4(void* shared, const void* global, const Where& where = Where::current()) {
  simt::Machine::Get().CopyAsync(shared, global, 4, where);
}
inline void CopyCommit() { simt::Machine::Get().CopyCommit(); }
template <int kLeft>
void CopyWait(const Where& where = Where::current()) {
  simt::Machine::Get().CopyWait(kLeft, where);
}

// ---- Phase barriers and bulk copies ----

struct alignas(8) PhaseBarrier {
  uint64_t bits;
};
inline void InitPhases(PhaseBarrier* barrier, int arrivals, const Where& where = Where::current()) {
  simt::Machine::Get().InitPhases(barrier, arrivals, where);
}
inline void FencePhases() { simt::Machine::Get().FencePhases(); }
inline void Arrive(PhaseBarrier* barrier, const Where& where = Where::current()) {
  simt::Machine::Get().Arrive(barrier, 0, where);
}
inline void WaitForPhase(PhaseBarrier* barrier, int parity, const Where& where = Where::current()) {
  simt::Machine::Get().WaitForPhase(barrier, parity, false, where);
}
inline int CopyArrivals() { return 1; }
inline void ExpectCopies(PhaseBarrier* barrier, int bytes, const Where& where = Where::current()) {
  if (Lane() == 0) simt::Machine::Get().Arrive(barrier, bytes, where);
}
inline void CopyByWarp(void* shared, const void* global, int bytes, PhaseBarrier* barrier,
                       const Where& where = Where::current()) {
  if (Lane() == 0) simt::Machine::Get().BulkCopy(shared, global, bytes, barrier, where);
}
inline void EndCopies(PhaseBarrier*) {}
inline void FenceBulkCopies() { simt::Machine::Get().FenceBulkCopies(); }

inline Words4 LoadMatrices(const void* row, const Where& where = Where::current()) {
  const Words4 mine = Load(static_cast<const Words4*>(row), where);
  return FromLane<Words4>(simt::Machine::Get().Collective(
      ToLane(mine), where, [](const simt::LaneValues& given, simt::LaneValues* got) {
        for (int lane = 0; lane < kWarpSize; ++lane) {
          Words4 words;
          for (int i = 0; i < 4; ++i) {
            words.words[i] = FromLane<Words4>(given[i * 8 + lane / 4]).words[lane % 4];
          }
          (*got)[lane] = ToLane(words);
        }
      }));
}

// ---- Arithmetic ----

inline float BitsToFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t FloatToBits(float value) { return std::bit_cast<uint32_t>(value); }
inline float MulAdd(float a, float b, float c) { return std::fma(a, b, c); }
inline float SquareRoot(float x) { return std::sqrt(x); }
inline float Larger(float a, float b) { return std::fmax(a, b); }
inline float Exponential(float x) { return std::exp(x); }
inline float HyperbolicTangent(float x) { return std::tanh(x); }
inline float Cosine(float x) { return std::cos(x); }
inline float Sine(float x) { return std::sin(x); }
inline int RoundToWhole(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float F16ToFloat(uint32_t bits) { return tandem::F16ToFloat(static_cast<uint16_t>(bits)); }
inline uint32_t PackBf16(float low, float high) {
  return FloatToBf16(low) | uint32_t{FloatToBf16(high)} << 16;
}

inline uint32_t SelectBytes(uint32_t low, uint32_t high, uint32_t which) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t selected = 0;
  for (int i = 0; i < 4; ++i) {
    selected |= static_cast<uint32_t>(bytes >> 8 * (which >> 4 * i & 7) & 0xFF) << 8 * i;
  }
  return selected;
}

// Uses the arithmetic of the device's tensor cores (tests/simt/tensor_core_arithmetic.h).
inline void MultiplyTile(const Words4& a, const uint32_t (&b)[2], float (&sums)[4],
                         const Where& where = Where::current()) {
  struct Given {
    uint32_t a[4], b[2];
    float sums[4];
  };
  struct Got {
    float sums[4];
  };
  Given mine;
  std::memcpy(mine.a, a.words, sizeof(mine.a));
  std::memcpy(mine.b, b, sizeof(mine.b));
  std::memcpy(mine.sums, sums, sizeof(mine.sums));
  const simt::TensorCore core = simt::Machine::Get().tensor_core();
  const auto multiply = [core](const simt::LaneValues& given, simt::LaneValues* got) {
    using simt::TensorNumber;
    TensorNumber left[16][simt::kTensorDepth], right[8][simt::kTensorDepth];
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const Given& from = reinterpret_cast<const Given&>(given[lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int i = 0; i < 8; ++i) {  // two numbers in each of four words
        const uint32_t word = from.a[i / 2];
        left[group + i / 2 % 2 * 8][pair + i / 4 * 8 + i % 2] =
            TensorNumber::OfBf16(static_cast<uint16_t>(word >> 16 * (i % 2)));
      }
      for (int i = 0; i < 4; ++i) {
        const uint32_t word = from.b[i / 2];
        right[group][pair + i / 2 * 8 + i % 2] =
            TensorNumber::OfBf16(static_cast<uint16_t>(word >> 16 * (i % 2)));
      }
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      Got sum;
      std::memcpy(&sum, reinterpret_cast<const Given&>(given[lane]).sums, sizeof(sum));
      for (int i = 0; i < 4; ++i) {
        const int m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
        sum.sums[i] = simt::MultiplyAndAdd(core, left[m], right[n], sum.sums[i]);
      }
      (*got)[lane] = ToLane(sum);
    }
  };
  const Got got = FromLane<Got>(simt::Machine::Get().Collective(ToLane(mine), where, multiply));
  std::memcpy(sums, got.sums, sizeof(got.sums));
}

// Multiplies integers for k in [begin, end).
inline void MultiplyWhole(const Words4& a, const uint32_t (&b)[2], int begin, int end,
                          const uint32_t (&first)[2], uint32_t (&sums)[4], const Where& where) {
  struct Given {
    uint32_t a[4], b[2];
  };
  struct Got {
    int32_t sums[4];
  };
  Given mine;
  std::memcpy(mine.a, a.words, sizeof(mine.a));
  std::memcpy(mine.b, b, sizeof(mine.b));
  const auto multiply = [begin, end](const simt::LaneValues& given, simt::LaneValues* got) {
    uint8_t left[16][32];
    int8_t right[8][32];
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const Given& from = reinterpret_cast<const Given&>(given[lane]);
      const int group = lane / 4, k = lane % 4 * 4;
      for (int i = 0; i < 4; ++i) {
        std::memcpy(&left[group + i % 2 * 8][k + i / 2 * 16], &from.a[i], 4);
      }
      for (int i = 0; i < 2; ++i) std::memcpy(&right[group][k + i * 16], &from.b[i], 4);
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
      Got sum = {};
      for (int i = 0; i < 4; ++i) {
        const int m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
        for (int k = begin; k < end; ++k) sum.sums[i] += left[m][k] * right[n][k];
      }
      (*got)[lane] = ToLane(sum);
    }
  };
  const Got got = FromLane<Got>(simt::Machine::Get().Collective(ToLane(mine), where, multiply));
  for (int i = 0; i < 4; ++i) sums[i] = first[i % 2] + static_cast<uint32_t>(got.sums[i]);
}
inline void MultiplyWholeTile(const Words4& a, const uint32_t (&b)[2], const uint32_t (&first)[2],
                              uint32_t (&sums)[4], const Where& where = Where::current()) {
  MultiplyWhole(a, b, 0, 32, first, sums, where);
}
inline void MultiplyHalfTile(const Words4& a, const uint32_t (&b)[2], int half,
                             const uint32_t (&first)[2], uint32_t (&sums)[4],
                             const Where& where = Where::current()) {
  MultiplyWhole(a, b, 16 * half, 16 * half + 16, first, sums, where);
}

}  // namespace tandem::cuda

#include "tests/simt/kernels/cuda/cluster.h"
#include "tests/simt/kernels/cuda/warpgroup.h"

namespace tandem::cuda {

// ---- Launching ----

template <typename Kernel>
Error HasCode(Stream stream, bool* has) {
  *has = simt::HasWarpgroups(stream);
  return kNoError;
}

template <typename Kernel>
Error Enqueue(const typename Kernel::Task& task, const LaunchShape& shape, Stream stream) {
  if (!shape.fits()) return kGridTooLarge;
  return simt::LaunchOn(stream, [task, shape, core = simt::TensorCoreOf(stream)] {
    return simt::Machine::Get().Run(
        shape, NumThreads<Kernel>(shape),
        [&task](unsigned char* shared) { Kernel::Run(task, shared); }, core);
  });
}

}  // namespace tandem::cuda

#endif  // TANDEM_TESTS_SIMT_KERNELS_CUDA_SIMT_H_
