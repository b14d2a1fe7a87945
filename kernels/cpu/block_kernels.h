// Products with weights of block formats. Include it after a simd_*.h.
//
// Within a group, or within a half of one if halves have scales, the products of integers are
// summed exactly. That sum times the scales of both sides, and then the minimum times the sum of
// the activations, are added to the output's only chain of sums, in increasing input. Nothing else
// rounds, so rows are independent here as in products of floats.
#ifndef TANDEM_KERNELS_CPU_BLOCK_KERNELS_H_
#define TANDEM_KERNELS_CPU_BLOCK_KERNELS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

// ---- Constants of all products ----

inline constexpr int kPanelVectors = kPanelOutputs / kLanes;
inline constexpr int kVectorBytes = kStepBytes / kPanelVectors;
// The cache lines of a step. If there is only one group of rows, it prefetches all of them.
inline constexpr int kStepLines = kStepBytes / 64;

// How far ahead a product prefetches if it reads its weights once: just in time, into the L1 cache.
// A product that goes over a block several times prefetches into the L2 cache, because lines in the
// L1 cache would evict the block: 8 rows then took 2.0 instead of 1.2 times as long as one row.
inline constexpr int kNearFetchBytes = 5120;

// ---- Weights of block formats ----

inline Words LoadStep(const std::byte* p) {
  return LoadWords16(reinterpret_cast<const uint32_t*>(p));
}

inline constexpr int kGroupSteps = kGroupOfBlock / 4;

// The numbers of IQ4_NL and IQ4_XS (kIq4Numbers in blocks.h) plus 128.
alignas(16) inline constexpr uint8_t kIq4Table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                      129, 141, 153, 166, 181, 197, 217, 241};

// The scales of a group, or of half of one, for 16 outputs.
struct GroupScales {
  Floats scales;
  Floats minimums;  // zeros in formats without minimums
};

template <typename DotProduct, DType kDType>
struct BlockFormat : DotProduct {
  static constexpr BlockLayout kLayout = BlockLayoutOf(kDType);

  // The codes of inputs [4 step, 4 step + 4) of 16 outputs.   group: at the first output's word
  static Words Numbers(const std::byte* group, int step) {
    if constexpr (kLayout.bits == 8) {
      return LoadStep(group + step * kStepBytes);
    } else {
      const Words pair = LoadStep(group + step / 2 * kStepBytes);
      const Words low = step % 2 == 0 ? LowNibbles(pair) : HighNibbles(pair);
      if constexpr (kLayout.has_table) return LookUp(kIq4Table, low);
      const std::byte* const rest = group + 4 * kStepBytes;
      if constexpr (kLayout.bits == 5) {
        const Words fifth = ShiftWords(LoadStep(rest), 4 - step);
        return OrWords(low, AndWords(fifth, SplatWord(0x10101010)));
      }
      if constexpr (kLayout.bits == 6) {
        const Words pairs = ShiftWords(LoadStep(rest + step / 4 * kStepBytes), 4 - step % 4 * 2);
        return OrWords(low, AndWords(pairs, SplatWord(0x30303030)));
      }
      return low;
    }
  }
  // Whether the products of a group, or of half of one, are summed in lanes of 16 bits (DotPairs).
  static constexpr bool kSumsPairs =
      DotProduct::kHasPairs && !kLayout.has_table && kLayout.bits != 8;
  // Whether codes, which are numbers plus 128, are first turned into the signed numbers.
  static constexpr bool kIsSigned = kLayout.zero == 128 && DotProduct::kIsSigned;
  // The sums are those of codes minus kCentre. Lanes of 16 bits may overflow on the way, because
  // they wrap around, but their final sums fit.
  static constexpr int kCentre = kIsSigned                        ? 0
                                 : kSumsPairs && kLayout.bits > 4 ? 1 << (kLayout.bits - 1)
                                                                  : kLayout.zero;
  static constexpr int kLargest = std::max(kCentre, (1 << kLayout.bits) - 1 - kCentre);
  static_assert(!kSumsPairs || kLargest * 127 * 2 * kGroupSteps / kLayout.halves() < 32768);
  // kCorrection times the activations is added to the sums.
  static constexpr int kCorrection = kIsSigned ? 0 : kCentre - kLayout.zero;
  // The scales of 16 outputs from `lane` on.
  static GroupScales Scales(const std::byte* unit, const std::byte* group, int half, int lane) {
    GroupScales scales = {Part<0>(unit, group, half, lane), Zero()};
    if constexpr (kLayout.has_minimums) scales.minimums = Part<1>(unit, group, half, lane);
    return scales;
  }

 private:
  // kPart: 0 for scales, 1 for minimums.
  template <int kPart>
  static Floats Part(const std::byte* unit, const std::byte* group, int half, int lane) {
    const std::byte* const at =
        group + kLayout.number_bytes() + kPart * kLayout.scale_bytes() + half * kPanelOutputs;
    if constexpr (kLayout.scales == BlockScales::kF16) {
      return WidenF16Row(at + lane * sizeof(uint16_t));
    } else {
      const Floats common = WidenF16Row(unit + (kPart * kPanelOutputs + lane) * sizeof(uint16_t));
      return Mul(common, WidenInt8(at + lane));
    }
  }
};

inline Words SplatPair(const int16_t (&pair)[2]) {
  uint32_t word;
  std::memcpy(&word, pair, sizeof(word));
  return SplatWord(word);
}
// The sums of pairs of a row's activations, of a group or of half of one.
template <typename Format>
inline Words PairsOf(const ActivationGroup& row, int half) {
  if (Format::kLayout.halves() == 2 && half == 0) return SplatPair(row.first_half);
  const Words both = SplatPair(row.both_halves);
  return Format::kLayout.halves() == 1 ? both : SubPairs(both, SplatPair(row.first_half));
}
// The initial value of a row's sums: -kCentre times the activations.
template <typename Format>
inline Words BeginningOf(const ActivationGroup& row, int half) {
  if constexpr (Format::kCentre == 0) return SplatWord(0);
  const Words pairs = PairsOf<Format>(row, half);
  return Format::kSumsPairs ? ScalePairs(pairs, -Format::kCentre)
                            : DotWithPairs(pairs, -Format::kCentre);
}
// The row's exact sums from those that started at BeginningOf.
template <typename Format>
inline Words EndOf(Words sum, const ActivationGroup& row, int half) {
  if constexpr (Format::kSumsPairs) sum = DotWithPairs(sum, 1);
  if constexpr (Format::kCorrection != 0) {
    sum = AddWords(sum, DotWithPairs(PairsOf<Format>(row, half), Format::kCorrection));
  }
  return sum;
}

// The cache lines of a group that each of its slices prefetches.
template <typename Format, int kVectors>
constexpr int SliceLines() {
  constexpr int kSlices = kPanelVectors / kVectors;
  return (Format::kLayout.group_bytes() / 64 + kSlices - 1) / kSlices;
}

// Adds a row's integer sums for 16 outputs, times the scales of both sides, to the outputs' totals,
// and then the minimums times the sum of the row's activations.
template <typename Format>
inline void AddProducts(const Words& products, const ActivationGroup& row, int half,
                        const GroupScales& scales, float* totals) {
  Floats total = Load(totals);
  total = MulAdd(SignedToFloats(products), Mul(scales.scales, Splat(row.scale)), total);
  if constexpr (Format::kLayout.has_minimums) {
    const int first = row.first_half[0] + row.first_half[1];
    const int of_half = half == 0 ? first : row.both_halves[0] + row.both_halves[1] - first;
    const float of_row =
        Format::kLayout.halves() == 1 ? row.sum : row.scale * static_cast<float>(of_half);
    total = MulAdd(scales.minimums, Splat(of_row), total);
  }
  Store(totals, total);
}

// Multiplies the integers of a group, or of half of one, by those of the rows.
//   w: the group, at the slice's first word; ahead: the lines to prefetch in the slice
//
// Sums are pinned: GCC 12 and clang 14 would turn the chains into trees, or move them after other
// rows' products, and spill all activations and weights of the group.
template <typename Format, int kRows, int kHalf, bool kFetches, int kVectors = SliceVectors(kRows)>
inline void MultiplyHalf(const std::byte* w, const ActivationGroup* activations,
                         const std::byte* ahead, Words (&sum)[kRows][kVectors]) {
  constexpr BlockLayout kLayout = Format::kLayout;
  constexpr int kSteps = kGroupSteps / kLayout.halves();
  constexpr int kLines = SliceLines<Format, kVectors>();
#pragma GCC unroll 8
  for (int i = 0; i < kSteps; ++i) {
    const int step = kHalf * kSteps + i;
#pragma GCC unroll 8
    for (int line = step * kLines / kGroupSteps;
         kFetches && line < (step + 1) * kLines / kGroupSteps; ++line) {
      FetchNear(ahead + 64 * line);
    }
    Words numbers[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      numbers[v] = Format::Numbers(w + v * kVectorBytes, step);
      if constexpr (Format::kIsSigned) numbers[v] = XorWords(numbers[v], SplatWord(0x80808080));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const ActivationGroup& row = activations[r * kLayout.unit_groups()];
      uint32_t four;
      std::memcpy(&four, row.values + 4 * step, sizeof(four));
      const Words activation = SplatWord(four);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Words so_far = i == 0 ? BeginningOf<Format>(row, kHalf) : sum[r][v];
        if constexpr (Format::kSumsPairs) {
          sum[r][v] = Format::DotPairs(so_far, numbers[v], activation);
        } else if constexpr (Format::kIsSigned) {
          sum[r][v] = Format::DotSigned(so_far, numbers[v], activation);
        } else {
          sum[r][v] = Format::Dot(so_far, numbers[v], activation);
        }
        Pin(sum[r][v]);
      }
    }
  }
}

// Adds the products of a slice of a group, or of half of one, to the totals of the slice's outputs.
//   lane: the slice's first output; sums: the totals of all outputs of the panel
template <typename Format, int kRows, int kHalf, bool kFetches>
[[gnu::always_inline]] inline void AddHalf(const std::byte* unit, const std::byte* group, int lane,
                                           const ActivationGroup* activations,
                                           const std::byte* ahead, float* sums) {
  constexpr int kVectors = SliceVectors(kRows);
  constexpr int kUnitGroups = Format::kLayout.unit_groups();
  Words sum[kRows][kVectors];
  MultiplyHalf<Format, kRows, kHalf, kFetches>(group + lane * 4, activations, ahead, sum);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int first = lane + v * kLanes;
    const GroupScales scales = Format::Scales(unit, group, kHalf, first);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const ActivationGroup& row = activations[r * kUnitGroups];
      AddProducts<Format>(EndOf<Format>(sum[r][v], row, kHalf), row, kHalf, scales,
                          sums + r * kPanelOutputs + first);
    }
  }
}

// sums += the rows' products with the groups of one unit.
//   activations: [kRows, unit_groups]; kFetches: whether it prefetches kNearFetchBytes ahead;
//   sums: [kRows, 64]
template <typename Format, int kRows, bool kFetches>
void MultiplyUnit(const std::byte* unit, const ActivationGroup* activations, int groups,
                  float* sums) {
  constexpr BlockLayout kLayout = Format::kLayout;
  constexpr int kVectors = SliceVectors(kRows);
  for (int line = 0; kFetches && line < kLayout.head_bytes(); line += 64) {
    FetchNear(unit + kNearFetchBytes + line);
  }
  const std::byte* group = unit + kLayout.head_bytes();
  for (int g = 0; g < groups; ++g, group += kLayout.group_bytes(), ++activations) {
    const std::byte* ahead = group + kNearFetchBytes;
    for (int lane = 0; lane < kPanelOutputs; lane += kVectors * kLanes) {
      AddHalf<Format, kRows, 0, kFetches>(unit, group, lane, activations, ahead, sums);
      if constexpr (kLayout.halves() == 2) {
        AddHalf<Format, kRows, 1, kFetches>(unit, group, lane, activations, ahead, sums);
      }
      ahead += 64 * SliceLines<Format, kVectors>();
    }
  }
}

using UnitFunction = void (*)(const std::byte* unit, const ActivationGroup* activations, int groups,
                              float* sums);

template <typename Format, int kRows>
UnitFunction UnitFunctionFor(int rows, bool fetches) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return UnitFunctionFor<Format, kRows - 1>(rows, fetches);
  }
  return fetches ? MultiplyUnit<Format, kRows, true> : MultiplyUnit<Format, kRows, false>;
}

// Calls multiply(unit, activations, groups, fetches) for each unit of a panel. The arguments are
// those of MultiplyUnit, for the rows from `first_row` on.
//   fetch_end: the end of the bytes to prefetch
template <typename Format, typename MultiplyRows>
inline void ForEachUnit(const ProductTask& task, const std::byte* panel, int first_row,
                        const std::byte* fetch_end, const MultiplyRows& multiply) {
  constexpr BlockLayout kLayout = Format::kLayout;
  constexpr int kUnitGroups = kLayout.unit_groups();
  const auto* x = static_cast<const ActivationGroup*>(task.activations) +
                  static_cast<size_t>(first_row) * kUnitGroups;
  for (int first = 0; first < task.num_steps; first += kUnitGroups) {
    const int left = task.num_steps - first;
    const int groups = left < kUnitGroups ? left : kUnitGroups;
    multiply(panel, x, groups, panel + kNearFetchBytes < fetch_end);
    x += static_cast<size_t>(task.num_rows) * kUnitGroups;
    panel += kLayout.head_bytes() + static_cast<size_t>(groups) * kLayout.group_bytes();
  }
}

// sums = the rows' products with one panel.   sums: [rows, 64]
template <typename Format>
void MultiplyBlockPanel(const ProductTask& task, const std::byte* panel, IndexRange rows,
                        const std::byte* fetch_end, float* sums) {
  const int num_rows = rows.end - rows.begin;
  const int row_groups = (num_rows + kMaxGroupRows - 1) / kMaxGroupRows;
  const int small = num_rows / row_groups;           // rows in a group of rows
  const int larger = num_rows - small * row_groups;  // groups with one row more, which come first
  std::fill_n(sums, static_cast<size_t>(num_rows) * kPanelOutputs, 0.0f);
  ForEachUnit<Format>(
      task, panel, rows.begin, fetch_end,
      [&](const std::byte* unit, const ActivationGroup* activations, int groups, bool fetches) {
        float* row_sums = sums;
        for (int i = 0; i < row_groups; ++i) {
          const int size = small + (i < larger ? 1 : 0);
          UnitFunctionFor<Format, kMaxGroupRows>(size, i == 0 && fetches)(unit, activations, groups,
                                                                          row_sums);
          activations += static_cast<size_t>(size) * Format::kLayout.unit_groups();
          row_sums += size * kPanelOutputs;
        }
      });
}

// Rounds to the nearest integer, ties to even. REQUIRES: |x| < 2^22.
inline Floats Round(Floats x) {
  const Floats large = Splat(0x1.8p23f);  // floats of this size are integers
  return Sub(Add(x, large), large);
}

// If all activations of a group are smaller, they count as zeros: 127 / largest might be infinite.
inline constexpr float kNoActivation = 0x1p-100f;

// Quantises kGroupOfBlock activations.
inline void QuantizeActivationGroup(const float* x, ActivationGroup* out) {
  Floats value[2];
  Floats most = Zero();
  Floats nothing = Zero();  // sums of 0 * x: 0, or NaN if an x is not finite
  for (int i = 0; i < 2; ++i) {
    value[i] = Load(x + i * kLanes);
    most = Max(most, Max(value[i], Sub(Zero(), value[i])));
    nothing = Add(nothing, Mul(value[i], Zero()));
  }
  const float largest = Largest(most);
  const float not_finite = IsNan(nothing) == 0 ? 0.0f : Sum(nothing);
  const bool any = not_finite == 0.0f && largest >= kNoActivation;
  const Floats inverse = Splat(any ? 127.0f / largest : 0.0f);
  out->scale = any ? largest / 127.0f : not_finite;
  for (int i = 0; i < 2; ++i) {
    const Floats whole = any ? Round(Mul(value[i], inverse)) : Zero();
    NarrowToInt8(out->values + i * kLanes, whole);
  }
  // Adds bytes plus 128 in four lanes of 16 bits.
  uint64_t so_far = 0;
  for (int i = 0; i < kGroupOfBlock; i += 8) {
    constexpr uint64_t kEven = 0x00FF00FF00FF00FF;
    uint64_t eight;
    std::memcpy(&eight, out->values + i, sizeof(eight));
    eight ^= 0x8080808080808080;
    so_far += (eight & kEven) + (eight >> 8 & kEven);
    const uint64_t pairs = so_far + (so_far >> 32);
    int16_t* const sums = i + 8 == kGroupOfBlock / 2 ? out->first_half : out->both_halves;
    const int bias = 128 * (i + 8) / 2;
    sums[0] = static_cast<int16_t>(static_cast<int>(pairs & 0xFFFF) - bias);
    sums[1] = static_cast<int16_t>(static_cast<int>(pairs >> 16 & 0xFFFF) - bias);
  }
  out->sum = out->scale * static_cast<float>(out->both_halves[0] + out->both_halves[1]);
}

// Quantises the activations of rows [rows).   packed: [units, num_rows, kUnitGroups]
template <int kUnitGroups>
void PackActivationGroups(const float* x, int64_t stride, int inputs, int num_rows, IndexRange rows,
                          void* packed) {
  auto* const out = static_cast<ActivationGroup*>(packed);
  const int groups = inputs / kGroupOfBlock;
  for (int r = rows.begin; r < rows.end; ++r) {
    for (int g = 0; g < groups; ++g) {
      const size_t unit = static_cast<size_t>(g / kUnitGroups) * num_rows + r;
      QuantizeActivationGroup(x + r * stride + g * kGroupOfBlock,
                              out + unit * kUnitGroups + g % kUnitGroups);
    }
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_BLOCK_KERNELS_H_
