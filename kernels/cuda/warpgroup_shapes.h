// How products of many rows with weights of bf16 are divided on Hopper (product_wgmma.cu).
#ifndef TANDEM_KERNELS_CUDA_WARPGROUP_SHAPES_H_
#define TANDEM_KERNELS_CUDA_WARPGROUP_SHAPES_H_

#include "kernels/cuda/operations.h"
#include "kernels/cuda/product_layout.h"
#include "kernels/cuda/variants.h"

namespace tandem::cuda {

// Two warpgroups multiply 8 tiles of outputs, one for each warp, by a variant's tiles of rows, in
// stages of a chunk.
inline constexpr int kWideWarps = 8;
inline constexpr int kWideOutputTiles = kWideWarps;
inline constexpr int kWideStages = 4;
inline constexpr int kChunkSteps = kChunkInputs / kStepInputs;
// Three warps next to the one that copies compute the factors of rows.
inline constexpr int kWideFactorWarps = 3;
// At the end of a tile, a warp moves the sums of this many tiles of rows to shared memory at a
// time, so that a short loop can end them.
inline constexpr int kWideEndTiles = 8;
// Offsets in shared memory: [stages] of rows, as in an image, and weights, [output tiles][steps].
struct WideShared {
  int weights;  // of a stage
  int stage_bytes;
  int sums;      // [warps][kWideEndTiles][lanes] of 16 bytes
  int factors;   // [row tiles * kTileRows]
  int barriers;  // of full stages, of empty ones; of factors that are ready, and that were read
  int num_bytes;
};
inline constexpr WideShared WideSharedOf(int row_tiles) {
  WideShared at{};
  at.weights = row_tiles * kRowTileBytes;
  at.stage_bytes = at.weights + kWideOutputTiles * kChunkSteps * kWeightStepBytes;
  at.sums = kWideStages * at.stage_bytes;
  at.factors = at.sums + kWideWarps * kWideEndTiles * 32 * 16;
  at.barriers = at.factors + row_tiles * kTileRows * 4;
  at.num_bytes = at.barriers + (2 * kWideStages + 2) * 8;
  return at;
}
// The tiles of a product in the order in which blocks take them: all outputs of a group of rows,
// tiles of rows first. Blocks that run at the same time share weights, and the rows of a group stay
// in L2 (16 MB for 2,048 rows of 4,096 inputs).
struct WideTile {
  int output_tile;
  int row_tile;
};
struct WideTiles {
  int row_tiles;  // of 8 rows, of a tile
  int across;     // tiles along the rows
  int down;       // along the outputs

  static constexpr int kGroup = 8;
  constexpr int count() const { return across * down; }
  constexpr WideTile At(int index) const {
    const int group = index / (kGroup * down), in_group = index % (kGroup * down);
    const int left = across - group * kGroup;
    const int wide = left < kGroup ? left : kGroup;
    return {in_group / wide * kWideOutputTiles, (group * kGroup + in_group % wide) * row_tiles};
  }
};
inline constexpr WideTiles WideTilesOf(int rows, int num_tiles, int row_tiles) {
  return {row_tiles, CeilDiv(rows, row_tiles * kTileRows), CeilDiv(num_tiles, kWideOutputTiles)};
}
// Returns the tiles of 8 rows of a variant. That of variant 0 takes the least time, which is bound
// by the bytes that an SM reads from L2.
inline constexpr int WideRowTiles(int rows, int num_tiles, int num_sms, int variant) {
  if (variant > 0)
    return kWideRowTiles[variant < kNumWideRowTiles ? variant - 1 : kNumWideRowTiles - 1];
  int best = 0;
  int64_t least = 0;
  for (const int row_tiles : kWideRowTiles) {
    const int64_t waves = CeilDiv(WideTilesOf(rows, num_tiles, row_tiles).count(), num_sms);
    const int64_t bytes = waves * WideSharedOf(row_tiles).stage_bytes;
    if (best > 0 && bytes >= least) continue;
    best = row_tiles;
    least = bytes;
  }
  return best;
}
// A block for each SM takes every num_sms-th tile.
inline constexpr LaunchShape WideShape(int rows, int num_tiles, int num_sms, int row_tiles) {
  const int count = WideTilesOf(rows, num_tiles, row_tiles).count();
  return {.x = count < num_sms ? count : num_sms,
          .y = 1,
          .z = 1,
          .shared_bytes = WideSharedOf(row_tiles).num_bytes};
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_WARPGROUP_SHAPES_H_
