// Functions by which lanes read weights of block formats from tiles (product_layout.h).
#ifndef TANDEM_KERNELS_CUDA_BLOCK_NUMBERS_CUH_
#define TANDEM_KERNELS_CUDA_BLOCK_NUMBERS_CUH_

#include "kernels/cuda/product_layout.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

inline constexpr uint32_t kLowHalves = 0x0F0F0F0F;
inline constexpr uint32_t kLowPairs = 0x03030303;

// Numbers from the low and from the high halves of bytes.
struct HalvesOfBytes {
  uint32_t low;
  uint32_t high;
};
TANDEM_DEVICE HalvesOfBytes Halves(uint32_t word) {
  return {word & kLowHalves, word >> 4 & kLowHalves};
}
// The same, with the halves as indices in kTableWords.
TANDEM_DEVICE HalvesOfBytes LookUp(uint32_t word) {
  uint32_t found[2];  // each for the halves of two bytes, in their order
  TANDEM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const uint32_t four = word >> 16 * i;
    const uint32_t in_eight = four & 0x7777;
    const uint32_t first = SelectBytes(kTableWords[0], kTableWords[1], in_eight);
    const uint32_t last = SelectBytes(kTableWords[2], kTableWords[3], in_eight);
    found[i] = SelectBytes(first, last, 0x3210 | (four & 0x8888) >> 1);
  }
  return {SelectBytes(found[0], found[1], 0x6420), SelectBytes(found[0], found[1], 0x7531)};
}

template <typename T>
TANDEM_DEVICE T LoadAt(const unsigned char* bytes) {
  return Load(reinterpret_cast<const T*>(bytes));
}

// Signed byte `i` of a word. The byte plus 128 becomes the low byte of 2^23, so this takes a
// selection and a subtraction, which a device does at several times the rate of a conversion.
TANDEM_DEVICE float ByteToFloat(uint32_t word, int i) {
  const uint32_t selected =
      SelectBytes(word ^ 0x80808080u, 0x4B000000u, 0x7540u | static_cast<uint32_t>(i));
  return BitsToFloat(selected) - 0x1.0001p23f;
}
TANDEM_DEVICE float F16Of(uint32_t pair, int i) { return F16ToFloat(pair >> 16 * i & 0xFFFF); }

// A step's scales, or minimums, for outputs g and g + 8.
template <int kHalves>
struct PairScales {
  float of[kHalves][2];
};

template <DType kDType>
struct BlockWeight {
  static constexpr BlockTiles kTiles = BlockTilesOf(kDType);
  static constexpr int kHalves = kTiles.halves();
  static constexpr int kPieceSteps = kTiles.piece_steps();
  static constexpr int kPieceBytes = kTiles.piece_bytes();
  static constexpr int kNumberBytes = kTiles.number_bytes();
  static constexpr int kMinimumsAt = kTiles.minimums_at();
  static constexpr int kZero = kTiles.zero;
  static constexpr bool kHasMinimums = kTiles.has_minimums;

  // Returns a lane's registers for a step of the piece at `piece`: [16 outputs, 32 inputs].
  TANDEM_DEVICE static Words4 Numbers(const unsigned char* piece, int step) {
    const unsigned char* const at = piece + Tiles().numbers_at(step, Lane());
    if constexpr (kTiles.bits == 8) {
      return LoadAt<Words4>(at);
    } else {
      const auto low = LoadAt<Words2>(at);
      Words4 numbers;
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const HalvesOfBytes halves = kTiles.has_table ? LookUp(low.words[i]) : Halves(low.words[i]);
        numbers.words[2 * i] = halves.low;
        numbers.words[2 * i + 1] = halves.high;
      }
      if constexpr (kTiles.bits == 6) {
        const auto high = LoadAt<uint32_t>(piece + Tiles().high_bits_at(step, Lane()));
        TANDEM_UNROLL
        for (int i = 0; i < 4; ++i) {
          // One shift by 4 - 2 i, rather than one in each direction.
          const uint32_t pairs = i < 2 ? high << (4 - 2 * i) : high >> (2 * i - 4);
          numbers.words[i] |= pairs & kLowPairs << 4;
        }
      }
      return numbers;
    }
  }

  // Returns the scales, or minimums, at `scales`, for outputs lane / 4 and lane / 4 + 8.
  TANDEM_DEVICE static PairScales<kHalves> Scales(const unsigned char* scales, int step) {
    const int pair = Lane() / 4;
    const unsigned char* const at = scales + Tiles().record_at(step, pair);
    PairScales<kHalves> pairs;
    if constexpr (!kTiles.has_factors()) {
      const auto record = LoadAt<uint32_t>(at);
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) pairs.of[0][i] = F16Of(record, i);
    } else {
      uint32_t record = 0;
      if constexpr (kHalves == 2) {
        record = LoadAt<uint32_t>(at);
      } else {
        record = LoadAt<uint16_t>(at);
      }
      const auto common = LoadAt<uint32_t>(scales + Tiles().common_at(pair));
      TANDEM_UNROLL
      for (int i = 0; i < 2 * kHalves; ++i) {
        pairs.of[i / 2][i % 2] = F16Of(common, i % 2) * ByteToFloat(record, i);
      }
    }
    return pairs;
  }

 private:
  // For member functions, which take `this` by reference.
  TANDEM_DEVICE static BlockTiles Tiles() { return BlockTilesOf(kDType); }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_BLOCK_NUMBERS_CUH_
