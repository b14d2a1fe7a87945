// The variants of each operation: template numbers of its kernels. All variants have equal bits,
// because the order of sums never depends on these numbers, so a choice among them changes only the
// time. Variant 0 is the built-in choice. A larger number than an operation has is its last one.
#ifndef TANDEM_KERNELS_CUDA_VARIANTS_H_
#define TANDEM_KERNELS_CUDA_VARIANTS_H_

#include <type_traits>

#include "kernels/cuda/product_layout.h"

namespace tandem::cuda {

// ---- Products of few rows ----

// Classes of rows: by the tiles of 8 rows that a block computes. More rows than the last class has
// take several blocks of it.
inline constexpr int kRowTileChoices[] = {1, 2, 4, 8};
inline constexpr int kNumRowTileChoices = 4;
inline constexpr int kMostFewRows = kRowTileChoices[kNumRowTileChoices - 1] * kTileRows;

inline constexpr int kMaxVariants = 6;

// Weights of bf16: a block has up to `most_warps` warps that multiply, each with its own tile of 16
// outputs at a time, and copies stages of `stage_steps` steps. There are `blocks` blocks for each
// multiprocessor.
struct FewRowsVariant {
  int stage_steps;
  int most_warps;
  int blocks;
};
inline constexpr int kMostTileWarps = 14;
inline constexpr FewRowsVariant kFewRowsVariants[kNumRowTileChoices][kMaxVariants] = {
    {{2, 14, 1}, {4, 10, 1}, {4, 7, 1}, {2, 7, 2}, {2, 7, 1}},
    {{2, 14, 1}, {4, 7, 1}, {2, 4, 2}, {2, 7, 1}},
    {{2, 12, 1}, {2, 6, 1}, {1, 14, 1}, {2, 6, 2}},
    {{2, 8, 1}, {2, 4, 1}, {1, 14, 1}},
};

// Many rows and weights of bf16 on Hopper: tiles of 8 rows of a block, and the blocks of a cluster,
// which share the rows. Wide variant 0 is the one that warpgroup_shapes.h chooses; the others are
// these, in order.
struct WideVariant {
  int row_tiles;
  int cluster;
};
inline constexpr WideVariant kWideVariants[] = {{32, 2}, {24, 2}, {16, 2}, {8, 2},
                                                {32, 1}, {24, 1}, {16, 1}, {8, 1}};
inline constexpr int kNumWideVariants = 8;

// Weights of block formats: a block has `output_tiles` tiles; each warp copies `stages` pieces of
// every tile.
struct BlocksVariant {
  int output_tiles;
  int stages;
};
// Rows take more registers than with bf16, so a block has at most four tiles of them.
inline constexpr int kNumBlocksRowTileChoices = 3;
inline constexpr BlocksVariant kBlocksVariants[kNumBlocksRowTileChoices][kMaxVariants] = {
    {{2, 3}, {1, 4}},
    {{2, 3}, {1, 4}},
    {{2, 3}},
};
inline constexpr int BlocksChoice(int choice) {
  return choice < kNumBlocksRowTileChoices ? choice : kNumBlocksRowTileChoices - 1;
}

// The number of variants for weights of `dtype` in a class of rows.
inline constexpr int NumVariantsOfChoice(DType dtype, int choice) {
  int count = 0;
  if (dtype == DType::kBF16) {
    while (count < kMaxVariants && kFewRowsVariants[choice][count].stage_steps > 0) ++count;
  } else if (IsBlocks(dtype)) {
    const int of_blocks = BlocksChoice(choice);
    while (count < kMaxVariants && kBlocksVariants[of_blocks][count].output_tiles > 0) ++count;
  }
  return count > 0 ? count : 1;
}
inline constexpr int RowTilesFor(int rows) {
  int choice = 0;
  while (choice + 1 < kNumRowTileChoices && kRowTileChoices[choice] * kTileRows < rows) ++choice;
  return choice;
}
// The number of variants of a product of `rows` rows, if its kernel is one for few rows; 1 for
// weights of f32 and f16.
inline constexpr int NumVariants(DType dtype, int rows) {
  return NumVariantsOfChoice(dtype, RowTilesFor(rows));
}

// Returns enqueue(the variant as a constant of type std::integral_constant) for one of kCount
// variants, the last one if there are fewer.
template <int kCount, int kVariant = 0, typename Enqueue>
auto EnqueueVariant(int variant, const Enqueue& enqueue) {
  if constexpr (kVariant + 1 < kCount) {
    if (variant > kVariant) return EnqueueVariant<kCount, kVariant + 1>(variant, enqueue);
  }
  return enqueue(std::integral_constant<int, kVariant>());
}

// ---- Distributions ----

// A cut counts its row in `copies` histograms, which the warps share. A warp first adds the entries
// that share a digit, for up to `groups` digits; it adds the rest one by one.
struct DistributionVariant {
  int copies;
  int groups;
};
inline constexpr DistributionVariant kDistributionVariants[] = {{32, 2}, {8, 2}, {8, 4}};
inline constexpr int kNumDistributionVariants = 3;

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_VARIANTS_H_
