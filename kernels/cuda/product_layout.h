// The memory layout of weights of bf16 and of block formats, and of rows, for the tensor cores. The
// lanes of a warp read adjacent memory.
//
// A step is 32 inputs, which take two multiplications. A tile of a weight is 16 outputs; a tile of
// rows is 8 rows. With half = 0, 1 of a step, g = lane / 4 and t = lane % 4 (MultiplyTile in
// simt.h):
//   weight: [tile][step][half][lane] of 16 bytes: outputs g, g + 8, g, g + 8 at inputs
//           2t, 2t, 2t + 8, 2t + 8 of the half, each with the next input
// Elements outside the matrix are zero. With kGateAndUp, a tile of a weight has 8 outputs of the
// gate, then the same 8 outputs of up.
//
// Rows of bf16 are an image of what shared memory holds, so that a copy of adjacent bytes brings
// them: [chunk of 64 inputs][tile][8 rows] of 128 bytes. Part p of the 16-byte parts of row r is at
// place p ^ r: the 128-byte swizzle of wgmma, which lanes read without bank conflicts. Inputs from
// the last one to the end of its step are zero. Rows after the last one of a tile, and a second
// step that the last chunk lacks, hold anything.
//
// Weights of block formats (kernels/blocks.h) are multiplied as integers of 8 bits, a step in
// one multiplication: BlockTiles below.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_
#define TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/matrix.h"

namespace tandem::cuda {

inline constexpr int kStepInputs = 32;
inline constexpr int kTileOutputs = 16;
inline constexpr int kTileRows = 8;
inline constexpr int kWeightStepBytes = 2 * kTileOutputs * kStepInputs;
inline constexpr int kWeightStepWords = kWeightStepBytes / 4;
inline constexpr int kRowsStepBytes = 2 * kTileRows * kStepInputs;
inline constexpr int kChunkInputs = 64;
inline constexpr int kRowBytes = 2 * kChunkInputs;  // of a chunk
inline constexpr int kRowTileBytes = kTileRows * kRowBytes;

inline constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }
inline constexpr int NumSteps(int inputs) { return CeilDiv(inputs, kStepInputs); }

inline constexpr size_t PackedWeightBytes(int num_tiles, int inputs) {
  return size_t{kWeightStepBytes} * num_tiles * NumSteps(inputs);
}
inline constexpr size_t RowsImageBytes(int rows, int inputs) {
  return size_t{kRowTileBytes} * CeilDiv(rows, kTileRows) * CeilDiv(inputs, kChunkInputs);
}
// The sums of squares of a row, one for each tile of 16 columns (warp_math.cuh).
inline constexpr int NumSquares(int cols) { return CeilDiv(cols, kTileOutputs); }
// The offset of an element in an image of `num_row_tiles` tiles of rows.
inline constexpr int64_t RowsImageOffset(int num_row_tiles, int row, int input) {
  const int64_t tile = int64_t{input / kChunkInputs} * num_row_tiles + row / kTileRows;
  const int place = input % kChunkInputs / 8 ^ row % kTileRows;
  return tile * kRowTileBytes + row % kTileRows * kRowBytes + place * 16 + input % 8 * 2;
}

// Word `word` (0 to 3) of the 16 bytes of `lane` in a half is the pair that begins at (output,
// input).
struct PlaceInTile {
  int output;
  int input;
};
inline constexpr PlaceInTile WeightPlace(int half, int lane, int word) {
  return {lane / 4 + word % 2 * 8, half * 16 + lane % 4 * 2 + word / 2 * 8};
}
// The inverse: the word of a step of a weight that has even input `input` of an output, and the
// next input.
inline constexpr int WordOfWeight(int output, int input) {
  const int half = input / 16, lane = output % 8 * 4 + input % 8 / 2;
  return (half * 32 + lane) * 4 + output / 8 + input % 16 / 8 * 2;
}
// The places, in a packed weight, of the outputs of one of its parts. Those of gate and up
// alternate in groups of 8.
struct PartPlaces {
  int first = 0;  // of output 0
  bool alternates = false;

  constexpr int Of(int output) const {
    return first + (alternates ? output / 8 * kTileOutputs + output % 8 : output);
  }
};
// The input at which word 0 to 3 of a lane's part of a step of rows, which are of row lane / 4,
// begins.
inline constexpr int RowsInput(int lane, int word) { return word * 8 + lane % 4 * 2; }

// ---- Weights of block formats ----

// The scale stored with the numbers of a step, which are a group of blocks.h.
enum class TileScales : uint8_t {
  kF16,          // an f16
  kFactors,      // a factor of 8 bits for an f16 that the steps of a piece share
  kHalfFactors,  // the same for each half of the step
};

// The layout of weights of a block format: [tile][piece]. A piece is `piece_steps()` steps with
// their numbers, scales and minimums:
//   numbers: unsigned, with `zero` added (with a table: indices). Register j = 0 to 3 of a lane has
//     four of output g + 8 (j % 2) from input 16 (j / 2) + 4t on, one byte each.
//     8 bits: [step][lane] of 16 bytes, register after register.
//     4 and 6 bits: [step][lane] of 8 bytes. Word 0 has the low 4 bits of registers 0 and 1 in the
//       low and high halves of its bytes; word 1 has those of registers 2 and 3.
//     6 bits: after these, [step][lane] of 4 bytes; bits 2j and 2j + 1 of a byte are register j's.
//   scales: [step][g], each for outputs g and g + 8; for halves of steps, the first half's first.
//     With factors, then [g] of the two shared f16.
//   minimums, if the format has them: same layout as scales.
struct BlockTiles {
  int bits = 0;
  TileScales scales = TileScales::kF16;
  bool has_minimums = false;
  bool has_table = false;
  int zero = 0;

  // About 1 KB of numbers, which a warp copies at a time.
  constexpr int piece_steps() const { return bits == 8 ? 2 : 4; }
  constexpr int number_bytes() const {
    return piece_steps() * kTileOutputs * kStepInputs * bits / 8;
  }
  constexpr int halves() const { return scales == TileScales::kHalfFactors ? 2 : 1; }
  constexpr bool has_factors() const { return scales != TileScales::kF16; }
  // For a step and two outputs.
  constexpr int scale_record_bytes() const { return scales == TileScales::kFactors ? 2 : 4; }
  // All scales, or minimums, of a piece.
  constexpr int scale_bytes() const {
    return kTileOutputs / 2 * (piece_steps() * scale_record_bytes() + (has_factors() ? 4 : 0));
  }
  constexpr int piece_bytes() const {
    return number_bytes() + scale_bytes() * (has_minimums ? 2 : 1);
  }

  // Offsets from the beginning of a piece.
  constexpr int numbers_at(int step, int lane) const {
    return (step * 32 + lane) * (bits == 8 ? 16 : 8);
  }
  constexpr int high_bits_at(int step, int lane) const {
    return piece_steps() * 32 * 8 + (step * 32 + lane) * 4;
  }
  constexpr int scales_at() const { return number_bytes(); }
  constexpr int minimums_at() const { return number_bytes() + scale_bytes(); }
  // Offsets from the beginning of the scales, or minimums, of a piece.
  constexpr int record_at(int step, int pair) const {
    return (step * (kTileOutputs / 2) + pair) * scale_record_bytes();
  }
  constexpr int common_at(int pair) const { return record_at(piece_steps(), 0) + pair * 4; }

  constexpr int num_pieces(int inputs) const { return CeilDiv(NumSteps(inputs), piece_steps()); }
  constexpr size_t packed_bytes(int num_tiles, int inputs) const {
    return static_cast<size_t>(piece_bytes()) * num_tiles * num_pieces(inputs);
  }
};
// Chains begin at multiples of this number of steps.
inline constexpr int kBlockChainSteps = 4;

inline constexpr BlockTiles BlockTilesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {8, TileScales::kF16, false, false, 128};
    case DType::kQ4_0:
      return {4, TileScales::kF16, false, false, 8};
    case DType::kQ4_1:
      return {4, TileScales::kF16, true, false, 0};
    case DType::kQ5_0:
      return {6, TileScales::kF16, false, false, 16};
    case DType::kQ5_1:
      return {6, TileScales::kF16, true, false, 0};
    case DType::kQ2K:
      return {4, TileScales::kHalfFactors, true, false, 0};
    case DType::kQ3K:
      return {4, TileScales::kHalfFactors, false, false, 4};
    case DType::kQ4K:
      return {4, TileScales::kFactors, true, false, 0};
    case DType::kQ5K:
      return {6, TileScales::kFactors, true, false, 0};
    case DType::kQ6K:
      return {6, TileScales::kHalfFactors, false, false, 32};
    case DType::kIq4Nl:
      return {4, TileScales::kF16, false, true, 128};
    case DType::kIq4Xs:
      return {4, TileScales::kFactors, false, true, 128};
    default:
      return {};
  }
}
// The numbers of kIq4Numbers plus 128, four in each word.
inline constexpr uint32_t kTableWords[4] = {0x3F2D1801, 0x766A5D4F, 0xA6998D81, 0xF1D9C5B5};

// The layout of rows for these weights, quantised to integers of 8 bits: [tile][step] of
//   numbers: [lane] of 8 bytes: row g at inputs 4t to 4t + 3, and 16 + 4t to 16 + 4t + 3
//   scales and sums: [t] of 16 bytes: the scales of rows 2t and 2t + 1, then their sums of numbers:
//     the first half of the step in the low 16 bits, the second half in the high 16 bits.
inline constexpr int kWholeRowsNumberBytes = kTileRows * kStepInputs;
inline constexpr int kWholeRowsStepBytes = kWholeRowsNumberBytes + kTileRows * 8;
// Steps of zeros follow the last one, so that the last piece of a weight has rows for all of its
// steps. They add +0 to sums.
inline constexpr int NumWholeRowsSteps(int inputs) {
  return CeilDiv(NumSteps(inputs), kBlockChainSteps) * kBlockChainSteps;
}
inline constexpr size_t PackedWholeRowsBytes(int rows, int inputs) {
  return size_t{kWholeRowsStepBytes} * CeilDiv(rows, kTileRows) * NumWholeRowsSteps(inputs);
}
// The lane and register that hold inputs `input` to `input` + 3 of a step, for output `output`.
struct PlaceOfWhole {
  int lane;
  int place;  // register
};
inline constexpr PlaceOfWhole WholePlace(int output, int input) {
  return {output % 8 * 4 + input % 16 / 4, output / 8 + input / 16 * 2};
}
inline constexpr int WholeRowsInput(int lane, int i) { return i / 4 * 16 + lane % 4 * 4 + i % 4; }

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_
