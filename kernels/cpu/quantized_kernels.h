// Products with quantised weights; include after a simd_*.h, whose PlainDot, or a better one, is
// the parameter of the formats.
//
// Inside a group whole numbers accumulate exactly. Its sum, times the group's two scales, joins the
// output's one chain of sums in increasing group: that alone rounds, so rows are independent here
// as in products of floats.
#ifndef TANDEM_KERNELS_CPU_QUANTIZED_KERNELS_H_
#define TANDEM_KERNELS_CPU_QUANTIZED_KERNELS_H_

#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

inline constexpr int kPanelVectors = kPanelOutputs / kLanes;
inline constexpr int kVectorBytes = kStepBytes / kPanelVectors;
// The lines of a step, all of which a single group of rows fetches.
inline constexpr int kStepLines = kStepBytes / 64;

// How far ahead of itself a product fetches. One that reads its weights once fetches just in time
// into the first-level cache; one that goes over a block several times, into the second-level
// cache, for in the first it would drive out the block: 8 rows then took 2.0 instead of 1.2 times
// as long as one.
inline constexpr int kNearFetchBytes = 5120;

template <typename DotProduct, int kSteps>
struct QuantizedBlocks : DotProduct {
  static constexpr bool kIsQuantized = true;
  static constexpr int kBlockSteps = kSteps;
  static constexpr int kBlockBytes = (kSteps + 1) * kStepBytes;  // with the scales
  // Two blocks fit the first-level cache, so groups of rows fetch there too. From memory 8 rows of
  // int8 took 1.08 times one row at this distance, 1.17 at a whole block and 1.24 at two; 16 rows
  // wait at less.
  static constexpr int kFetchBytes = 6144;
};

template <typename DotProduct>
struct Int8Format : QuantizedBlocks<DotProduct, kInt8GroupSteps> {
  static constexpr int kOffset = 128;
  static constexpr int kSubsteps = 1;  // of four inputs
  static Words Weights(Words step, int) { return step; }
};

template <typename DotProduct>
struct Int4Format : QuantizedBlocks<DotProduct, kInt4GroupSteps> {
  static constexpr int kOffset = 8;
  static constexpr int kSubsteps = 2;
  static Words Weights(Words step, int high) { return high ? HighNibbles(step) : LowNibbles(step); }
};

inline Words LoadStep(const std::byte* p) {
  return LoadWords16(reinterpret_cast<const uint32_t*>(p));
}

// As MultiplyFloats, of one group.   activations: [kRows] QuantizedActivations
template <typename Format, int kRows, int kFetchLines>
void MultiplyQuantized(const std::byte* weights, const void* activations, int /*steps*/, bool start,
                       const std::byte* ahead, float* sums) {
  constexpr int kVectors = SliceVectors(kRows);
  constexpr int kSlices = kPanelVectors / kVectors;
  constexpr int kSliceLines = kFetchLines > kSlices ? kFetchLines / kSlices : kFetchLines > 0;
  const auto* rows = static_cast<const QuantizedActivations*>(activations);
  for (int slice = 0; slice < kPanelVectors; slice += kVectors) {
    const std::byte* w = weights + slice * kVectorBytes;
    Words sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Words first = SplatWord(static_cast<uint32_t>(-Format::kOffset * rows[r].sum));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = first;
    }
    const int8_t* x = rows[0].values;
    for (int step = 0; step < Format::kBlockSteps; ++step) {
      if (slice < kFetchLines * kVectors) {
#pragma GCC unroll 4
        for (int line = 0; line < kSliceLines; ++line) FetchNear(ahead + 64 * line);
        ahead += 64 * kSliceLines;
      }
      Words weight[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) weight[v] = LoadStep(w + v * kVectorBytes);
#pragma GCC unroll 2
      for (int sub = 0; sub < Format::kSubsteps; ++sub) {
        Words part[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) part[v] = Format::Weights(weight[v], sub);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          uint32_t four;
          std::memcpy(&four, x + r * sizeof(QuantizedActivations), sizeof(four));
          const Words activation = SplatWord(four);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            sum[r][v] = Format::Dot(sum[r][v], part[v], activation);
          }
        }
        x += 4;
      }
      w += kStepBytes;
    }
    const auto* scales = reinterpret_cast<const float*>(w);
    float* slice_sums = sums + slice * kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats row_scale = Splat(rows[r].scale);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* out = slice_sums + r * kPanelOutputs + v * kLanes;
        const Floats scale = Mul(Load(scales + v * kLanes), row_scale);
        Store(out, MulAdd(SignedToFloats(sum[r][v]), scale, start ? Zero() : Load(out)));
      }
    }
  }
}

// To the nearest whole number, to even between two. REQUIRES: |x| < 2^22.
inline Floats Round(Floats x) {
  const Floats large = Splat(0x1.8p23f);  // from here on, all that a float holds are whole numbers
  return Sub(Add(x, large), large);
}

// Activations all below this in magnitude count as zeros: 127 over them might be infinite.
inline constexpr float kNoActivation = 0x1p-100f;

// Quantises `count` <= kGroupInputs activations; zeros follow.
inline void QuantizeActivations(const float* x, int count, QuantizedActivations* out) {
  Floats value[kGroupInputs / kLanes];
  Floats most = Zero();
  Floats nothing = Zero();  // or NaN
  for (int i = 0; i < kGroupInputs / kLanes; ++i) {
    const int left = count - i * kLanes;
    value[i] = left > 0 ? LoadPart(x + i * kLanes, left < kLanes ? left : kLanes) : Zero();
    most = Max(most, Max(value[i], Sub(Zero(), value[i])));
    nothing = Add(nothing, Mul(value[i], Zero()));
  }
  const float largest = Largest(most);
  const float not_finite = Sum(nothing);
  const bool any = not_finite == 0.0f && largest >= kNoActivation;
  const Floats inverse = Splat(any ? 127.0f / largest : 0.0f);
  out->scale = any ? largest / 127.0f : not_finite;
  Floats sum = Zero();  // exact: 128 whole numbers of 7 bits
  for (int i = 0; i < kGroupInputs / kLanes; ++i) {
    const Floats whole = any ? Round(Mul(value[i], inverse)) : Zero();
    NarrowToInt8(out->values + i * kLanes, whole);
    sum = Add(sum, whole);
  }
  out->sum = static_cast<int32_t>(Sum(sum));
}

inline void PackQuantizedActivations(const float* x, int64_t stride, int inputs, int num_rows,
                                     IndexRange rows, void* packed) {
  auto* out = static_cast<QuantizedActivations*>(packed);
  for (int first = 0; first < inputs; first += kGroupInputs, out += num_rows) {
    const int count = inputs - first < kGroupInputs ? inputs - first : kGroupInputs;
    for (int r = rows.begin; r < rows.end; ++r) {
      QuantizeActivations(x + r * stride + first, count, out + r);
    }
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_QUANTIZED_KERNELS_H_
