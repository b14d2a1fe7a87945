// Products with packed weights of block formats and rows quantised to integers of 8 bits.
//
// The numbers of a step, or of each half of it if halves have their own scales, are multiplied and
// added exactly. The sum, times the scales of both sides, is added to its chain in increasing order
// of inputs; then the minimum times the sum of the row's numbers is added. The inputs of an output
// are divided into kChains chains, which are added in order. So its bits do not depend on the
// number of rows, or on whether blocks are for few or many rows.
#ifndef TANDEM_KERNELS_CUDA_BLOCK_PRODUCT_CUH_
#define TANDEM_KERNELS_CUDA_BLOCK_PRODUCT_CUH_

#include <type_traits>

#include "kernels/cuda/block_numbers.cuh"
#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// Adding an integer n of less than 22 bits to these bits gives the bits of the f32 number 1.5 *
// 2^23 + n. Subtracting kWholeOffset from that gives n exactly, so the conversion costs one
// subtraction.
inline constexpr uint32_t kWholeBits = 0x4B400000;
inline constexpr float kWholeOffset = 0x1.8p23f;

// A lane's part of a step of a tile of rows (product_layout.h).
struct WholeRow {
  Words2 numbers;
  Words4 notes;  // scales, then sums of numbers, of rows lane % 4 * 2 and the next one

  // Loads the `step`th step after the start of the lane's numbers and notes.
  TANDEM_DEVICE void Load(const unsigned char* numbers_at, const unsigned char* notes_at,
                          int step) {
    numbers = LoadAt<Words2>(numbers_at + step * kWholeRowsStepBytes);
    notes = LoadAt<Words4>(notes_at + step * kWholeRowsStepBytes);
  }
  TANDEM_DEVICE static int NumbersAt() { return Lane() * 8; }
  TANDEM_DEVICE static int NotesAt() { return kWholeRowsNumberBytes + Lane() % 4 * 16; }

  TANDEM_DEVICE float scale(int i) const { return BitsToFloat(notes.words[i]); }
  // Returns the sum of the numbers of a half, or of both halves.
  template <int kHalves>
  TANDEM_DEVICE int Sum(int i, int half) const {
    const uint32_t sums = notes.words[2 + i];
    const int first = static_cast<int16_t>(sums & 0xFFFF), last = static_cast<int16_t>(sums >> 16);
    return kHalves == 1 ? first + last : half == 0 ? first : last;
  }
};

// The terms of a step of a tile of rows that all outputs share.
template <typename Weight>
struct RowTerms {
  uint32_t first[Weight::kHalves][2];  // initial values of integer sums
  float sums[Weight::kHalves][2];      // factors of minimums

  TANDEM_DEVICE void Set(const WholeRow& row) {
    TANDEM_UNROLL
    for (int i = 0; i < 2 * Weight::kHalves; ++i) {
      const int sum = row.Sum<Weight::kHalves>(i % 2, i / 2);
      first[i / 2][i % 2] = kWholeBits - static_cast<uint32_t>(Weight::kZero * sum);
      const float as_float = BitsToFloat(kWholeBits + static_cast<uint32_t>(sum)) - kWholeOffset;
      sums[i / 2][i % 2] = row.scale(i % 2) * as_float;
    }
  }
};

template <typename Weight>
TANDEM_DEVICE void MultiplyHalf(const Words4& numbers, const WholeRow& row,
                                const RowTerms<Weight>& terms, int half,
                                const PairScales<Weight::kHalves>& scales,
                                const PairScales<Weight::kHalves>& minimums, float (&sums)[4]) {
  uint32_t whole[4];
  if constexpr (Weight::kHalves == 1) {
    MultiplyWholeTile(numbers, row.numbers.words, terms.first[half], whole);
  } else {
    MultiplyHalfTile(numbers, row.numbers.words, half, terms.first[half], whole);
  }
  TANDEM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float product = BitsToFloat(whole[i]) - kWholeOffset;
    sums[i] = MulAdd(product, scales.of[half][i / 2] * row.scale(i % 2), sums[i]);
    if constexpr (Weight::kHasMinimums) {
      sums[i] = MulAdd(minimums.of[half][i / 2], terms.sums[half][i % 2], sums[i]);
    }
  }
}

// Adds step `step` of the tiles' pieces, which are contiguous.
template <typename Weight, int kOutputTiles, int kRowTiles>
TANDEM_DEVICE void MultiplyBlocks(const unsigned char* pieces, int step,
                                  const WholeRow (&rows)[kRowTiles],
                                  TileSums<kOutputTiles, kRowTiles>& sums) {
  RowTerms<Weight> terms[kRowTiles];
  TANDEM_UNROLL
  for (int r = 0; r < kRowTiles; ++r) terms[r].Set(rows[r]);
  TANDEM_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    const unsigned char* const piece = pieces + tile * Weight::kPieceBytes;
    const Words4 numbers = Weight::Numbers(piece, step);
    const auto scales = Weight::Scales(piece + Weight::kNumberBytes, step);
    PairScales<Weight::kHalves> minimums = {};
    if constexpr (Weight::kHasMinimums) {
      minimums = Weight::Scales(piece + Weight::kMinimumsAt, step);
    }
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TANDEM_UNROLL
      for (int half = 0; half < Weight::kHalves; ++half) {
        MultiplyHalf<Weight>(numbers, rows[r], terms[r], half, scales, minimums, sums[tile][r]);
      }
    }
  }
}

// Starts to copy kBytes, a multiple of 16. `to` and `from` are the addresses of the lane's 16 bytes
// in the first 512.
template <int kBytes>
TANDEM_DEVICE void CopyBytes(unsigned char* to, const unsigned char* from) {
  TANDEM_UNROLL
  for (int at = 0; at < kBytes; at += kWarpSize * 16) {
    if (at + kWarpSize * 16 <= kBytes || Lane() * 16 < kBytes - at) CopyAsync16(to + at, from + at);
  }
}

// Returns the first piece of a weight's tile, clamped to the last tile (WeightTile).
template <typename Weight>
TANDEM_DEVICE const unsigned char* PiecesOf(const TileProductTask& task, int tile) {
  const int num_pieces = CeilDiv(NumSteps(task.x.cols), Weight::kPieceSteps);
  return static_cast<const unsigned char*>(task.weight) +
         int64_t{WeightTile(task, tile)} * num_pieces * Weight::kPieceBytes;
}
// Returns the first step of tile `tile` of rows.
TANDEM_DEVICE const unsigned char* StepsOfRows(const TileProductTask& task, int tile) {
  return static_cast<const unsigned char*>(task.rows) +
         int64_t{RowTile(task, tile)} * NumWholeRowsSteps(task.x.cols) * kWholeRowsStepBytes;
}

// Returns enqueue(the format as a constant of type std::integral_constant).
template <DType kDType>
using BlockFormat = std::integral_constant<DType, kDType>;
template <typename Enqueue>
Error EnqueueFormat(DType dtype, const Enqueue& enqueue) {
  switch (dtype) {
    case DType::kQ8_0:
      return enqueue(BlockFormat<DType::kQ8_0>());
    case DType::kQ4_0:
      return enqueue(BlockFormat<DType::kQ4_0>());
    case DType::kQ4_1:
      return enqueue(BlockFormat<DType::kQ4_1>());
    case DType::kQ5_0:
      return enqueue(BlockFormat<DType::kQ5_0>());
    case DType::kQ5_1:
      return enqueue(BlockFormat<DType::kQ5_1>());
    case DType::kQ2K:
      return enqueue(BlockFormat<DType::kQ2K>());
    case DType::kQ3K:
      return enqueue(BlockFormat<DType::kQ3K>());
    case DType::kQ4K:
      return enqueue(BlockFormat<DType::kQ4K>());
    case DType::kQ5K:
      return enqueue(BlockFormat<DType::kQ5K>());
    case DType::kQ6K:
      return enqueue(BlockFormat<DType::kQ6K>());
    case DType::kIq4Nl:
      return enqueue(BlockFormat<DType::kIq4Nl>());
    default:
      return enqueue(BlockFormat<DType::kIq4Xs>());
  }
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_BLOCK_PRODUCT_CUH_
