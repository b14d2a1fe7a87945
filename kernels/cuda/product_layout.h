// How weights of bf16, int8 and int4, and rows, lie for the tensor cores, so that each lane of a
// warp reads what it multiplies as 16 bytes next to its neighbours'.
//
// A step is 32 inputs, two multiplications deep. A tile of a weight is 16 outputs, a tile of rows
// 8. With half = 0, 1 of a step, g = lane / 4 and t = lane % 4 (MultiplyTile in simt.h):
//   weight: [tile][step][half][lane] of 16 bytes: outputs g, g + 8, g, g + 8 at inputs
//           2t, 2t, 2t + 8, 2t + 8 of the half and one behind each
//   rows:   [tile][step][lane] of 16 bytes: row g at inputs 2t, 2t + 8 of the first half, then of
//           the second, and one behind each
// A weight of int8 has a step in 16 bytes a lane, both halves' numbers in the same order, a byte
// each. One of int4 has two steps in 16 bytes a lane, a word for each half: pair i of the four
// above is bits 4 i to 4 i + 3 and the same of the upper half, 8 more than they are. Behind all
// tiles of either come scales, [tile][groups of kGroupSteps steps][16 outputs] of f32. What lies
// outside the matrix is zero. Of kGateAndUp a weight's tile has 8 outputs of the gate, then the
// same 8 of the other.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_
#define TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

inline constexpr int kStepInputs = 32;
inline constexpr int kTileOutputs = 16;
inline constexpr int kTileRows = 8;
inline constexpr int kWeightStepBytes = 2 * kTileOutputs * kStepInputs;
inline constexpr int kInt8StepBytes = kTileOutputs * kStepInputs;
inline constexpr int kGroupSteps = 4;  // of kQuantizationGroup inputs
inline constexpr int kRowsStepBytes = 2 * kTileRows * kStepInputs;

inline constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }
inline constexpr int NumSteps(int inputs) { return CeilDiv(inputs, kStepInputs); }

inline constexpr size_t PackedWeightBytes(int num_tiles, int inputs) {
  return size_t{kWeightStepBytes} * num_tiles * NumSteps(inputs);
}
inline constexpr int NumGroups(int inputs) { return CeilDiv(NumSteps(inputs), kGroupSteps); }
inline constexpr size_t PackedInt8Bytes(int num_tiles, int inputs) {  // without scales
  return size_t{kInt8StepBytes} * num_tiles * NumSteps(inputs);
}
inline constexpr size_t PackedInt4Bytes(int num_tiles, int inputs) {  // likewise
  return size_t{kInt8StepBytes} * num_tiles * CeilDiv(NumSteps(inputs), 2);
}
inline constexpr size_t PackedScales(int num_tiles, int inputs) {
  return size_t{kTileOutputs} * num_tiles * NumGroups(inputs);
}
inline constexpr size_t PackedRowsBytes(int rows, int inputs) {
  return size_t{kRowsStepBytes} * CeilDiv(rows, kTileRows) * NumSteps(inputs);
}

// Word `word` (0 to 3) of the 16 bytes of `lane` in a half: the pair that begins at (output,
// input).
struct PlaceInTile {
  int output;
  int input;
};
inline constexpr PlaceInTile WeightPlace(int half, int lane, int word) {
  return {lane / 4 + word % 2 * 8, half * 16 + lane % 4 * 2 + word / 2 * 8};
}
// The same of rows: word 0 to 3 of a step.
inline constexpr int RowsInput(int lane, int word) { return word * 8 + lane % 4 * 2; }

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_LAYOUT_H_
