// Searches for the scales of quantised weights (quantize.h). Include it after a simd_*.h.
// Multiply-adds are not fused, so that the same weights become the same blocks on every machine.
#ifndef TANDEM_KERNELS_CPU_SEARCH_KERNELS_H_
#define TANDEM_KERNELS_CPU_SEARCH_KERNELS_H_

#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

// 16 or 32 weights, padded with zeros.
struct SearchedWeights {
  Floats part[2];
  float low;   // at most 0
  float high;  // at least 0
};

inline SearchedWeights LoadWeights(const float* x, int count) {
  static_assert(kLanes == 16);
  SearchedWeights weights;
  weights.part[0] = Load(x);
  weights.part[1] = count > kLanes ? Load(x + kLanes) : Zero();
  weights.high = Largest(Max(weights.part[0], Max(weights.part[1], Zero())));
  const Floats least = Min(weights.part[0], Min(weights.part[1], Zero()));
  weights.low = -Largest(Sub(Zero(), least));
  return weights;
}

// If the range of the weights is smaller than this, the scale is 0: its inverse might be infinite.
inline constexpr float kNoWeight = 0x1p-100f;

// For given numbers q the best scale is (x . q) / (q . q), which reduces the squared error by (x .
// q)^2 / (q . q). Tries the numbers that result from scales around the two that map the weight of
// largest magnitude to the lowest and to the highest number.
inline float SearchScaleOf(const float* x, int count, float low, float high) {
  constexpr int kSteps = 6;  // on each side
  constexpr float kStep = 0.025f;
  const SearchedWeights weights = LoadWeights(x, count);
  const float largest = weights.high >= -weights.low ? weights.high : weights.low;
  if (!(weights.high - weights.low >= kNoWeight)) return 0.0f;
  float best_gain = -1.0f;
  float best = 0.0f;
  for (int edge = 0; edge < 2; ++edge) {
    for (int step = -kSteps; step <= kSteps; ++step) {
      const float inverse =
          (edge == 0 ? low : high) * (1.0f + kStep * static_cast<float>(step)) / largest;
      Floats dots = Zero();
      Floats norms = Zero();
      for (const Floats& part : weights.part) {
        const Floats rounded = Round(Mul(part, Splat(inverse)));
        const Floats q = Min(Max(rounded, Splat(low)), Splat(high));
        dots = Add(dots, Mul(part, q));
        norms = Add(norms, Mul(q, q));
      }
      const float dot = Sum(dots);
      const float norm = Sum(norms);
      if (norm > 0.0f && dot * dot > best_gain * norm) {
        best_gain = dot * dot / norm;
        best = dot / norm;
      }
    }
  }
  return best;
}

// The sums over codes q and weights y that determine the line a * q + b closest to y, and its
// error.
struct LineSums {
  double y, yy, q, qq, yq;
  double count;
};

struct Line {
  double scale = 0.0;
  double minimum = 0.0;
  double error = 0.0;
};

inline Line FitLine(const LineSums& s, double highest_minimum) {
  Line line;
  const double determinant = s.count * s.qq - s.q * s.q;
  if (determinant > 0.0) {
    line.scale = (s.count * s.yq - s.y * s.q) / determinant;
    line.minimum = (s.y - line.scale * s.q) / s.count;
  }
  if (line.minimum > highest_minimum) {
    line.minimum = highest_minimum;
    line.scale = s.qq > 0.0 ? (s.yq - highest_minimum * s.q) / s.qq : 0.0;
  }
  const double a = line.scale;
  const double b = line.minimum;
  line.error = s.yy + a * a * s.qq + b * b * s.count + 2.0 * (a * b * s.q - a * s.yq - b * s.y);
  return line;
}

// Tries the codes that result from lines from the lowest weight to slightly below and above the
// highest one. Sums use y = x - lowest, to reduce cancellation.
inline void SearchLineOf(const float* x, int count, float most, bool minimum_is_negative,
                         float* scale, float* minimum) {
  constexpr int kSteps = 10;  // on each side
  constexpr float kStep = 0.1f;
  const Floats first = Load(x);
  const Floats second = count > kLanes ? Load(x + kLanes) : first;
  const float highest = Largest(Max(first, second));
  float lowest = -Largest(Sub(Zero(), Min(first, second)));
  if (minimum_is_negative && lowest > 0.0f) lowest = 0.0f;
  const float range = highest - lowest;
  *minimum = lowest;
  *scale = range >= kNoWeight ? range / most : 0.0f;  // the result if the search finds none better
  if (*scale == 0.0f) return;
  const int parts = count > kLanes ? 2 : 1;
  const Floats y[2] = {Sub(first, Splat(lowest)), Sub(second, Splat(lowest))};
  LineSums sums = {};
  sums.count = count;
  for (int i = 0; i < parts; ++i) {
    sums.y += Sum(y[i]);
    sums.yy += Sum(Mul(y[i], y[i]));
  }
  const double highest_minimum = minimum_is_negative ? -static_cast<double>(lowest) : 1e30;
  double least = 1e300;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const Floats inverse = Splat((most + kStep * static_cast<float>(step)) / range);
    Floats q_sum = Zero();
    Floats qq_sum = Zero();
    Floats yq_sum = Zero();
    for (int i = 0; i < parts; ++i) {
      const Floats q = Min(Round(Mul(y[i], inverse)), Splat(most));
      q_sum = Add(q_sum, q);
      qq_sum = Add(qq_sum, Mul(q, q));
      yq_sum = Add(yq_sum, Mul(y[i], q));
    }
    sums.q = Sum(q_sum);
    sums.qq = Sum(qq_sum);
    sums.yq = Sum(yq_sum);
    const Line line = FitLine(sums, highest_minimum);
    if (!(line.scale > 0.0) || !(line.error < least)) continue;
    least = line.error;
    *scale = static_cast<float>(line.scale);
    *minimum = static_cast<float>(lowest + line.minimum);
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_SEARCH_KERNELS_H_
