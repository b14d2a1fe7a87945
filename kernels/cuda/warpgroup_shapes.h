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
// The tiles of a product in the order in which clusters take them: all outputs of a group of rows,
// tiles of rows first. The blocks of a cluster take adjacent outputs of the same rows. Blocks that
// run at the same time share weights, and the rows of a group stay in L2 (16 MB for 2,048 rows of
// 4,096 inputs).
struct WideTile {
  int output_tile;  // of the cluster's first block
  int row_tile;
};
struct WideTiles {
  WideVariant variant;
  int across;  // tiles along the rows
  int down;    // along the outputs, of a cluster

  static constexpr int kGroup = 8;
  constexpr int count() const { return across * down; }
  constexpr WideTile At(int index) const {
    const int group = index / (kGroup * down), in_group = index % (kGroup * down);
    const int left = across - group * kGroup;
    const int wide = left < kGroup ? left : kGroup;
    return {in_group / wide * kWideOutputTiles * variant.cluster,
            (group * kGroup + in_group % wide) * variant.row_tiles};
  }
};
inline constexpr WideTiles WideTilesOf(int rows, int num_tiles, const WideVariant& variant) {
  return {variant, CeilDiv(rows, variant.row_tiles * kTileRows),
          CeilDiv(num_tiles, kWideOutputTiles * variant.cluster)};
}
// The clusters that run at the same time, with a block for each SM.
inline constexpr int WideClusters(int num_sms, int cluster) {
  return num_sms < cluster ? 1 : num_sms / cluster;
}
// Returns a variant. Variant 0 is the one that takes the least time, which is bound by the bytes
// that an SM reads from L2.
inline constexpr WideVariant WideVariantOf(int rows, int num_tiles, int num_sms, int variant) {
  if (variant > 0)
    return kWideVariants[variant < kNumWideVariants ? variant - 1 : kNumWideVariants - 1];
  WideVariant best{};
  int64_t least = 0;
  for (const WideVariant& of : kWideVariants) {
    if (of.cluster > num_sms) continue;
    const WideShared shared = WideSharedOf(of.row_tiles);
    const int64_t waves =
        CeilDiv(WideTilesOf(rows, num_tiles, of).count(), WideClusters(num_sms, of.cluster));
    const int64_t bytes =
        waves * (shared.weights / of.cluster + shared.stage_bytes - shared.weights);
    if (best.cluster > 0 && bytes >= least) continue;
    best = of;
    least = bytes;
  }
  return best;
}
// A cluster takes every WideClusters-th tile.
inline constexpr LaunchShape WideShape(int rows, int num_tiles, int num_sms,
                                       const WideVariant& variant) {
  const int count = WideTilesOf(rows, num_tiles, variant).count();
  const int most = WideClusters(num_sms, variant.cluster);
  return {.x = (count < most ? count : most) * variant.cluster,
          .y = 1,
          .z = 1,
          .shared_bytes = WideSharedOf(variant.row_tiles).num_bytes,
          .cluster = variant.cluster};
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_WARPGROUP_SHAPES_H_
