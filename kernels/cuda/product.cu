#include "kernels/cuda/plain_products.cuh"
#include "kernels/cuda/product_kernels.cuh"
#include "kernels/cuda/product_many_rows.cuh"

namespace tandem::cuda {
namespace {

template <int kChoice>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = FewRowsTiles(DType::kBF16, kChoice);
  return Enqueue<TileProductKernel<kTiles.rows, kTiles.outputs>>(
      task, TileProductShape(DType::kBF16, kTiles, task.out.rows, task.num_tiles), stream);
}

int NumPackedSteps(const PackRowsTask& task) {
  return task.quantizes ? NumWholeRowsSteps(task.x.cols) : NumSteps(task.x.cols);
}

template <typename Format>
Error EnqueuePackRows(const PackRowsTask& task, Stream stream) {
  const int rows = task.plain_rows > 0 ? task.plain_rows : task.x.rows;
  if (task.norm.weight != nullptr) {
    return Enqueue<PackNormedRowsKernel<Format>>(task, PackNormedRowsShape(rows), stream);
  }
  return Enqueue<PackRowsKernel<Format>>(task, PackRowsShape(rows, NumPackedSteps(task)), stream);
}

}  // namespace

Error Launch(const PackRowsTask& task, Stream stream) {
  if (task.plain_rows > 0) return EnqueuePackRows<PlainRows>(task, stream);
  return task.quantizes ? EnqueuePackRows<WholeRows>(task, stream)
                        : EnqueuePackRows<Bf16Rows>(task, stream);
}

Error Launch(const TileProductTask& task, Stream stream) {
  if (IsBlocks(task.dtype)) return LaunchBlocks(task, stream);
  if (HasManyRows(task.dtype, task.out.rows, task.num_tiles, task.num_processors)) {
    return Enqueue<ManyRowsProductKernel>(
        task, ManyRowsShape(task.dtype, task.out.rows, task.num_tiles), stream);
  }
  static_assert(kNumRowTileChoices == 4);
  switch (RowTilesFor(task.out.rows)) {
    case 0:
      return EnqueueFewRows<0>(task, stream);
    case 1:
      return EnqueueFewRows<1>(task, stream);
    case 2:
      return EnqueueFewRows<2>(task, stream);
    default:
      return EnqueueFewRows<3>(task, stream);
  }
}

Error Launch(const UnpackTilesTask& task, Stream stream) {
  return Enqueue<UnpackTilesKernel>(task, PackRowsShape(task.num_tiles * kTileRows, task.num_steps),
                                    stream);
}

Error Launch(const EndSumsTask& task, Stream stream) {
  return Enqueue<EndSumsKernel>(task, EndSumsShape(task.product.out.rows, task.product.num_tiles),
                                stream);
}

Error Launch(const FloatProductTask& task, Stream stream) {
  return Enqueue<FloatProductKernel>(task, FloatProductShape(task.out.rows, task.out.cols), stream);
}

}  // namespace tandem::cuda
