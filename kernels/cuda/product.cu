#include "kernels/cuda/product_kernels.cuh"

namespace tandem::cuda {
namespace {

template <int kChoice>
Error EnqueueProduct(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = kProductTiles[kChoice];
  if (task.scales == nullptr) {
    return Enqueue<TileProductKernel<Bf16Weight, kTiles.rows, kTiles.outputs>>(
        task, TileProductShape(kTiles, task.out.rows, task.num_tiles), stream);
  }
  constexpr ProductTiles kInt8Tiles = {kTiles.rows, 1};  // a stage is a group of one tile
  return Enqueue<TileProductKernel<Int8Weight, kInt8Tiles.rows, 1>>(
      task, TileProductShape(kInt8Tiles, task.out.rows, task.num_tiles), stream);
}

}  // namespace

Error Launch(const PackRowsTask& task, Stream stream) {
  return Enqueue<PackRowsKernel>(task, PackRowsShape(task.x.rows, task.x.cols), stream);
}

Error Launch(const TileProductTask& task, Stream stream) {
  static_assert(kNumProductTiles == 4);
  switch (ProductTilesFor(task.out.rows)) {
    case 0:
      return EnqueueProduct<0>(task, stream);
    case 1:
      return EnqueueProduct<1>(task, stream);
    case 2:
      return EnqueueProduct<2>(task, stream);
    default:
      return EnqueueProduct<3>(task, stream);
  }
}

Error Launch(const FloatProductTask& task, Stream stream) {
  return Enqueue<FloatProductKernel>(task, FloatProductShape(task.out.rows, task.out.cols), stream);
}

}  // namespace tandem::cuda
