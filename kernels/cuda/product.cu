#include "kernels/cuda/product_kernels.cuh"

namespace tandem::cuda {
namespace {

template <typename Weight, int kRowTiles, int kOutputTiles>
Error EnqueueTiles(const TileProductTask& task, Stream stream) {
  return Enqueue<TileProductKernel<Weight, kRowTiles, kOutputTiles>>(
      task, TileProductShape({kRowTiles, kOutputTiles}, task.out.rows, task.num_tiles), stream);
}

// Of int8 and int4 a stage is a group.
template <int kChoice>
Error EnqueueProduct(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = kProductTiles[kChoice];
  if (task.dtype == DType::kInt8) return EnqueueTiles<Int8Weight, kTiles.rows, 1>(task, stream);
  if (task.dtype == DType::kInt4) {
    return EnqueueTiles < Int4Weight, kTiles.rows < 4 ? kTiles.rows : 4, 2 > (task, stream);
  }
  return EnqueueTiles<Bf16Weight, kTiles.rows, kTiles.outputs>(task, stream);
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
