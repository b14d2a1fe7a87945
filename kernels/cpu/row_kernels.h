// Normalisation, scaling and rotation of one row. Include it after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_ROW_KERNELS_H_
#define TANDEM_KERNELS_CPU_ROW_KERNELS_H_

#include "kernels/cpu/exponential.h"

namespace tandem {
namespace {

inline int LanesLeft(int size, int i) { return size - i < kLanes ? size - i : kLanes; }

// A sum over a row: one chain for each index modulo 64, and a tree that adds the 64 chains.
// add(values, sum) returns the next sum of 16 chains.
template <typename AddTo>
inline float SumOverRow(const float* x, int size, AddTo add) {
  Floats sum[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int i = 0; i < size; i += 4 * kLanes) {
    for (int v = 0; v < 4 && i + v * kLanes < size; ++v) {
      const int at = i + v * kLanes;
      sum[v] = add(LoadPart(x + at, LanesLeft(size, at)), sum[v]);
    }
  }
  return Sum(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

inline void RmsNormOf(const float* x, const float* weight, int size, float epsilon, float* out) {
  const float squares =
      SumOverRow(x, size, [](Floats value, Floats sum) { return MulAdd(value, value, sum); });
  const float mean = squares / static_cast<float>(size);
  const Floats inverse = Splat(1.0f / __builtin_sqrtf(mean + epsilon));
  for (int i = 0; i < size; i += kLanes) {
    const int count = LanesLeft(size, i);
    const Floats value = Mul(LoadPart(x + i, count), inverse);
    StorePart(out + i, Mul(value, LoadPart(weight + i, count)), count);
  }
}

inline void SubtractMeanOf(const float* x, int size, float* out) {
  const float total = SumOverRow(x, size, [](Floats value, Floats sum) { return Add(sum, value); });
  const Floats mean = Splat(total / static_cast<float>(size));
  for (int i = 0; i < size; i += kLanes) {
    const int count = LanesLeft(size, i);
    StorePart(out + i, Sub(LoadPart(x + i, count), mean), count);
  }
}

inline void ScaleAndCapOf(float scale, float soft_cap, int size, float* x) {
  for (int i = 0; i < size; i += kLanes) {
    const int count = LanesLeft(size, i);
    const Floats scaled = Mul(LoadPart(x + i, count), Splat(scale));
    StorePart(x + i, soft_cap > 0.0f ? SoftCapped(scaled, soft_cap) : scaled, count);
  }
}

inline void AddScaledOf(const float* x, float scale, int size, float* sum) {
  for (int i = 0; i < size; i += kLanes) {
    const int count = LanesLeft(size, i);
    const Floats scaled = Mul(LoadPart(x + i, count), Splat(scale));
    StorePart(sum + i, Add(LoadPart(sum + i, count), scaled), count);
  }
}

// Rounds three times for each element, as the reference does: x cos + rotated(x) sin.
inline void RotateHead(const float* angles, int head_dim, float* head) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    const int count = LanesLeft(half, i);
    const Floats cosine = LoadPart(angles + i, count);
    const Floats sine = LoadPart(angles + half + i, count);
    const Floats first = LoadPart(head + i, count);
    const Floats second = LoadPart(head + half + i, count);
    StorePart(head + i, Sub(Mul(first, cosine), Mul(second, sine)), count);
    StorePart(head + half + i, Add(Mul(second, cosine), Mul(first, sine)), count);
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ROW_KERNELS_H_
