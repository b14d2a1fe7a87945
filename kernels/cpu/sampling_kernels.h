// Kernels on rows of probabilities, and races for tokens. Include it after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_SAMPLING_KERNELS_H_
#define TANDEM_KERNELS_CPU_SAMPLING_KERNELS_H_

#include "base/philox_rounds.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/exponential.h"
#include "kernels/row_sums.h"

namespace tandem {
namespace {

// The largest entry of x, or a NaN if x contains one.
inline float LargestOrNan(const float* x, int size) {
  Floats largest = Splat(-__builtin_inff());
  uint32_t nan = 0;
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats value = Load(x + i);
    nan |= IsNan(value);
    largest = Max(largest, value);
  }
  float best = Largest(largest);
  for (; i < size; ++i) {
    nan |= x[i] != x[i];
    best = x[i] > best ? x[i] : best;
  }
  return nan != 0 ? __builtin_nanf("") : best;
}

// row = exp(row * scale - largest), divided by its sum. REQUIRES: largest, the maximum of
// row * scale, is finite.
inline void SoftmaxOf(float* row, int size, float scale, float largest) {
  const Floats scales = Splat(scale);
  const Floats shift = Splat(largest);
  static_assert(kLanes == kSumLanes);
  float total = 0.0f;
  for (int chunk = 0; chunk < size; chunk += kSumChunk) {
    const int end = size - chunk < kSumChunk ? size : chunk + kSumChunk;
    Floats sum = Zero();
    for (int i = chunk; i < end; i += kLanes) {
      const int count = end - i < kLanes ? end - i : kLanes;
      const Floats weight = Exp(Sub(Mul(LoadPart(row + i, count), scales), shift));
      StorePart(row + i, weight, count);
      sum = Add(sum, KeepLanes(weight, 0, count, Zero()));
    }
    total += Sum(sum);
  }
  const Floats inverse = Splat(1.0f / total);
  for (int i = 0; i < size; i += kLanes) {
    const int count = size - i < kLanes ? size - i : kLanes;
    StorePart(row + i, Mul(LoadPart(row + i, count), inverse), count);
  }
}

// The random bits of 64 entries, in order: the 16 Philox blocks from lane `first_lane` on.
inline void PhiloxOf64(const RaceTask& task, uint32_t first_lane, Words bits[4]) {
  // The order of lanes that TransposeWords expects.
  static constexpr uint32_t kOrder[kLanes] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  Words c0 = SplatWord(task.counter[0]);
  Words c1 = SplatWord(task.counter[1]);
  Words c2 = AddWords(SplatWord(first_lane), LoadWords16(kOrder));
  Words c3 = SplatWord(task.counter[3]);
  uint32_t k0 = static_cast<uint32_t>(task.key);
  uint32_t k1 = static_cast<uint32_t>(task.key >> 32);
  const Words multiplier0 = SplatWord(kPhiloxMultiplier0);
  const Words multiplier1 = SplatWord(kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    Words high0, low0, high1, low1;
    MulWide(c0, multiplier0, &high0, &low0);
    MulWide(c2, multiplier1, &high1, &low1);
    c0 = XorWords(XorWords(high1, c1), SplatWord(k0));
    c2 = XorWords(XorWords(high0, c3), SplatWord(k1));
    c1 = low1;
    c3 = low0;
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  bits[0] = c0;
  bits[1] = c1;
  bits[2] = c2;
  bits[3] = c3;
  TransposeWords(bits);
}

inline int RaceCandidatesOf(const RaceTask& task, int32_t* ids, uint32_t* candidate_bits) {
  constexpr int kEntries = 4 * kLanes;
  const Floats bound = Splat(task.bound);
  const Floats scale = Splat(0x1p-32f);
  const Floats half = Splat(0x1p-33f);
  int num_found = 0;
  for (int first = 0; first < task.size; first += kEntries) {
    Words bits[4];
    PhiloxOf64(task, task.first_lane + static_cast<uint32_t>(first / 4), bits);
    for (int j = 0; j < 4; ++j) {
      const int at = first + j * kLanes;
      const int count = task.size - at < kLanes ? task.size - at : kLanes;
      if (count <= 0) break;
      const Floats u = Add(Mul(ToFloats(bits[j]), scale), half);
      uint32_t hits = AtMost(u, Mul(LoadPart(task.weights + at, count), bound));
      if (hits == 0) continue;
      uint32_t lane_bits[kLanes];
      StoreWords16(lane_bits, bits[j]);
      for (; hits != 0; hits &= hits - 1) {
        const int lane = __builtin_ctz(hits);
        ids[num_found] = at + lane;
        candidate_bits[num_found++] = lane_bits[lane];
      }
    }
  }
  return num_found;
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_SAMPLING_KERNELS_H_
