#include "kernels/cuda/product_blocks.cuh"

namespace tandem::cuda {
namespace {

template <typename Weight, int kRowTiles>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = {kRowTiles, kBlockOutputTiles};
  return Enqueue<BlockProductKernel<Weight, kRowTiles>>(
      task, TileProductShape(task.dtype, kTiles, task.out.rows, task.num_tiles), stream);
}

template <int kBits, TileScales kScales>
Error EnqueueBlocks(const TileProductTask& task, Stream stream) {
  using Weight = BlockWeight<kBits, kScales>;
  if (HasManyRows(task.dtype, task.out.rows, task.num_tiles, task.num_processors)) {
    return Enqueue<ManyRowsBlockProductKernel<Weight>>(
        task, ManyRowsShape(task.dtype, task.out.rows, task.num_tiles), stream);
  }
  switch (FewRowsTiles(task.dtype, RowTilesFor(task.out.rows)).rows) {
    case 1:
      return EnqueueFewRows<Weight, 1>(task, stream);
    case 2:
      return EnqueueFewRows<Weight, 2>(task, stream);
    default:
      return EnqueueFewRows<Weight, 4>(task, stream);
  }
}

template <int kBits>
Error EnqueueBlocksOfK(const TileProductTask& task, Stream stream) {
  return task.tiles.scales == TileScales::kFactors
             ? EnqueueBlocks<kBits, TileScales::kFactors>(task, stream)
             : EnqueueBlocks<kBits, TileScales::kHalfFactors>(task, stream);
}

}  // namespace

// The formats are of seven kinds (BlockTilesOf).
Error LaunchBlocks(const TileProductTask& task, Stream stream) {
  const bool has_factors = task.tiles.has_factors();
  switch (task.tiles.bits) {
    case 4:
      return has_factors ? EnqueueBlocksOfK<4>(task, stream)
                         : EnqueueBlocks<4, TileScales::kF16>(task, stream);
    case 6:
      return has_factors ? EnqueueBlocksOfK<6>(task, stream)
                         : EnqueueBlocks<6, TileScales::kF16>(task, stream);
    default:
      return EnqueueBlocks<8, TileScales::kF16>(task, stream);
  }
}

}  // namespace tandem::cuda
