// How panels hold the weights of block formats (kernels/blocks.h); for who packs and who
// multiplies.
#ifndef TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_
#define TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

namespace tandem {

// Inputs of a group, which have a scale in common or two, and groups of a block of the K formats.
inline constexpr int kGroupOfBlock = 32;
inline constexpr int kSuperBlockGroups = 8;

// What stands beside the numbers of a group.
enum class BlockScales {
  kF16,          // an f16
  kFactors,      // a factor of 8 bits, of an f16 that 8 groups have in common
  kHalfFactors,  // the same for each half of it
};

// A panel is a sequence of units of `unit_groups` groups; the last unit may have fewer. A unit is
//   head: with factors the f16 scales of the 64 outputs, and then their f16 minimums, if any
//   its groups, each
//     numbers, unsigned, `zero` more than they are (with a table: indices). Steps of 256 bytes hold
//       a word for each output: of 8 bits 4 inputs k to k + 3, else the low 4 bits of 8 inputs,
//       byte i those of inputs k + i, and k + 4 + i in its high half;
//     of 5 bits a step of fifth bits: bit s of byte i of a word is that of input 4 s + i;
//     of 6 bits two steps, each of 16 inputs: bits 2 s and 2 s + 1 of byte i are those of 4 s + i;
//     scales of the 64 outputs as `scales` says, for halves one after the other; minimums alike.
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
  // Of a group's scales, or of its minimums.
  constexpr int scale_bytes() const { return scales == BlockScales::kFactors ? 64 : 128; }
  constexpr int group_bytes() const { return number_bytes() + scale_bytes() * parts(); }
  constexpr size_t panel_bytes(int inputs) const {
    const int groups = inputs / kGroupOfBlock;
    const int units = (groups + unit_groups() - 1) / unit_groups();
    return static_cast<size_t>(units) * head_bytes() + static_cast<size_t>(groups) * group_bytes();
  }
};

// Q2_K and Q3_K have their numbers in 4 bits.
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

// kGroupOfBlock activations of a row: integers in [-127, 127] times `scale`, NaN if one of
// them is not finite.
struct ActivationGroup {
  int8_t values[kGroupOfBlock];
  float scale;
  int32_t sums[2];  // of each half's values
  float sum;        // scale * the sum of all values, rounded
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_BLOCK_LAYOUT_H_
