#include "kernels/cuda/product_kernels.cuh"
#include "kernels/cuda/product_many_rows.cuh"

namespace tandem::cuda {
namespace {

template <typename Weight, int kRowTiles, int kOutputTiles>
Error EnqueueTiles(const TileProductTask& task, Stream stream) {
  return Enqueue<TileProductKernel<Weight, kRowTiles, kOutputTiles>>(
      task, TileProductShape(task.dtype, {kRowTiles, kOutputTiles}, task.out.rows, task.num_tiles),
      stream);
}

template <int kChoice>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kBf16 = FewRowsTiles(DType::kBF16, kChoice);
  constexpr ProductTiles kInt8 = FewRowsTiles(DType::kInt8, kChoice);
  constexpr ProductTiles kInt4 = FewRowsTiles(DType::kInt4, kChoice);
  switch (task.dtype) {
    case DType::kInt8:
      return EnqueueTiles<Int8Weight, kInt8.rows, kInt8.outputs>(task, stream);
    case DType::kInt4:
      return EnqueueTiles<Int4Weight, kInt4.rows, kInt4.outputs>(task, stream);
    default:
      return EnqueueTiles<Bf16Weight, kBf16.rows, kBf16.outputs>(task, stream);
  }
}

template <typename Weight, DType kDType>
Error EnqueueManyRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = ManyRowsTiles(kDType);
  return Enqueue<ManyRowsProductKernel<Weight, kTiles.rows>>(
      task, ManyRowsShape(kDType, task.out.rows, task.num_tiles), stream);
}

Error EnqueueManyRows(const TileProductTask& task, Stream stream) {
  switch (task.dtype) {
    case DType::kInt8:
      return EnqueueManyRows<Int8Weight, DType::kInt8>(task, stream);
    case DType::kInt4:
      return EnqueueManyRows<Int4Weight, DType::kInt4>(task, stream);
    default:
      return EnqueueManyRows<Bf16Weight, DType::kBF16>(task, stream);
  }
}

int NumPackedSteps(const PackRowsTask& task) {
  return task.quantizes ? NumWholeRowsSteps(task.x.cols) : NumSteps(task.x.cols);
}

template <typename Format>
Error EnqueuePackRows(const PackRowsTask& task, Stream stream) {
  if (task.norm.weight != nullptr) {
    return Enqueue<PackNormedRowsKernel<Format>>(task, PackNormedRowsShape(task.x.rows), stream);
  }
  return Enqueue<PackRowsKernel<Format>>(task, PackRowsShape(task.x.rows, NumPackedSteps(task)),
                                         stream);
}

}  // namespace

Error Launch(const PackRowsTask& task, Stream stream) {
  return task.quantizes ? EnqueuePackRows<WholeRows>(task, stream)
                        : EnqueuePackRows<Bf16Rows>(task, stream);
}

Error Launch(const TileProductTask& task, Stream stream) {
  if (IsBlocks(task.dtype)) return LaunchBlocks(task, stream);
  if (HasManyRows(task.dtype, task.out.rows, task.num_tiles, task.num_processors)) {
    return EnqueueManyRows(task, stream);
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

Error Launch(const FloatProductTask& task, Stream stream) {
  return Enqueue<FloatProductKernel>(task, FloatProductShape(task.out.rows, task.out.cols), stream);
}

}  // namespace tandem::cuda
