// The layout of block formats (kernels/blocks.h) in panels, for packing and for products.
#ifndef TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_
#define TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

namespace tandem {

// The inputs of a group, which has one scale or two.
inline constexpr int kGroupOfBlock = 32;
// The groups of a block of the K formats.
inline constexpr int kSuperBlockGroups = 8;

// The scale (and minimum) of a group.
enum class BlockScales {
  kF16,          // an f16
  kFactors,      // a factor of 8 bits, times an f16 that 8 groups share
  kHalfFactors,  // such a factor for each half of the group
};

// A panel is a sequence of units of `unit_groups` groups; the last unit may have fewer. A unit is
//   a head, only with factors: the f16 scales of the 64 outputs, then their f16 minimums, if any;
//   its groups, each of which is
//     codes: unsigned, a number plus `zero`, or with a table an index. They are in steps of 256
//       bytes, which have a word for each output. With 8 bits a word holds the codes of inputs k to
//       k + 3. Otherwise it holds the low 4 bits of 8 inputs: byte i has those of input k + i in
//       its low half, and those of input k + 4 + i in its high half;
//     with 5 bits, a step of fifth bits: bit s of byte i of a word is that of input 4 s + i;
//     with 6 bits, two steps of upper bits, one for each 16 inputs: bits 2 s and 2 s + 1 of byte i
//       are those of input 4 s + i;
//     the scales of the 64 outputs, as `scales` says; with half factors, those of the first half
//       and then those of the second; then the minimums, if any, in the same layout.
struct BlockLayout {
  int bits = 0;
  bool has_table = false;
  int zero = 0;
  BlockScales scales = BlockScales::kF16;
  bool has_minimums = false;

  constexpr int parts() const { return has_minimums ? 2 : 1; }
  constexpr int halves() const { return scales == BlockScales::kHalfFactors ? 2 : 1; }
  constexpr int unit_groups() const { return scales == BlockScales::kF16 ? 4 : kSuperBlockGroups; }
  constexpr int head_bytes() const { return scales == BlockScales::kF16 ? 0 : 128 * parts(); }
  constexpr int number_bytes() const { return bits * 256; }
  // The bytes of a group's scales, or of its minimums, for the 64 outputs.
  constexpr int scale_bytes() const { return scales == BlockScales::kFactors ? 64 : 128; }
  constexpr int group_bytes() const { return number_bytes() + scale_bytes() * parts(); }
  constexpr size_t panel_bytes(int inputs) const {
    const int groups = inputs / kGroupOfBlock;
    const int units = (groups + unit_groups() - 1) / unit_groups();
    return static_cast<size_t>(units) * head_bytes() + static_cast<size_t>(groups) * group_bytes();
  }
};

// The layout of each format. The codes of Q2_K and Q3_K take 4 bits.
constexpr BlockLayout BlockLayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {.bits = 8, .zero = 128};
    case DType::kQ4_0:
      return {.bits = 4, .zero = 8};
    case DType::kQ4_1:
      return {.bits = 4, .has_minimums = true};
    case DType::kQ5_0:
      return {.bits = 5, .zero = 16};
    case DType::kQ5_1:
      return {.bits = 5, .has_minimums = true};
    case DType::kQ2K:
      return {.bits = 4, .scales = BlockScales::kHalfFactors, .has_minimums = true};
    case DType::kQ3K:
      return {.bits = 4, .zero = 4, .scales = BlockScales::kHalfFactors};
    case DType::kQ4K:
      return {.bits = 4, .scales = BlockScales::kFactors, .has_minimums = true};
    case DType::kQ5K:
      return {.bits = 5, .scales = BlockScales::kFactors, .has_minimums = true};
    case DType::kQ6K:
      return {.bits = 6, .zero = 32, .scales = BlockScales::kHalfFactors};
    case DType::kIq4Nl:
      return {.bits = 4, .has_table = true, .zero = 128};
    case DType::kIq4Xs:
      return {.bits = 4, .has_table = true, .zero = 128, .scales = BlockScales::kFactors};
    default:
      return {};
  }
}

// kGroupOfBlock activations of a row, quantised to integers in [-127, 127] times `scale`. The scale
// is NaN if one of the activations is not finite.
struct ActivationGroup {
  int8_t values[kGroupOfBlock];
  float scale;
  // Sums of the values of inputs 4 s and 4 s + 1, and of inputs 4 s + 2 and 4 s + 3.
  int16_t first_half[2];
  int16_t both_halves[2];
  float sum;  // scale * the sum of all values, rounded
};
static_assert(sizeof(ActivationGroup) == 48);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_
