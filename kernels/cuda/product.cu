#include "kernels/cuda/product_kernels.cuh"

namespace tandem::cuda {
namespace {

template <typename Weight, int kRowTiles, int kOutputTiles>
Error EnqueueTiles(const TileProductTask& task, Stream stream) {
  return Enqueue<TileProductKernel<Weight, kRowTiles, kOutputTiles>>(
      task, TileProductShape({kRowTiles, kOutputTiles}, task.out.rows, task.num_tiles), stream);
}

template <int kChoice>
Error EnqueueProduct(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = kProductTiles[kChoice];
  constexpr ProductTiles kInt8 = Int8Tiles(kTiles);
  constexpr ProductTiles kInt4 = Int4Tiles(kTiles);
  switch (task.dtype) {
    case DType::kInt8:
      return EnqueueTiles<Int8Weight, kInt8.rows, kInt8.outputs>(task, stream);
    case DType::kInt4:
      return EnqueueTiles<Int4Weight, kInt4.rows, kInt4.outputs>(task, stream);
    default:
      return EnqueueTiles<Bf16Weight, kTiles.rows, kTiles.outputs>(task, stream);
  }
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
