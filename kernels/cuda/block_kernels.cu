#include "kernels/cuda/block_kernels.cuh"

namespace tandem::cuda {
namespace {

template <DType kDType, int kRowTiles>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = {kRowTiles, kBlockOutputTiles};
  return Enqueue<BlockProductKernel<BlockWeight<kDType>, kRowTiles>>(
      task, TileProductShape(kDType, kTiles, task.out.rows, task.num_tiles), stream);
}

template <DType kDType>
Error EnqueueBlocks(const TileProductTask& task, Stream stream) {
  if (HasManyRows(kDType, task.out.rows, task.num_tiles, task.num_processors)) {
    return Enqueue<ManyRowsBlockProductKernel<BlockWeight<kDType>>>(
        task, ManyRowsShape(kDType, task.out.rows, task.num_tiles), stream);
  }
  switch (FewRowsTiles(kDType, RowTilesFor(task.out.rows)).rows) {
    case 1:
      return EnqueueFewRows<kDType, 1>(task, stream);
    case 2:
      return EnqueueFewRows<kDType, 2>(task, stream);
    default:
      return EnqueueFewRows<kDType, 4>(task, stream);
  }
}

}  // namespace

Error LaunchBlocks(const TileProductTask& task, Stream stream) {
  switch (task.dtype) {
    case DType::kQ8_0:
      return EnqueueBlocks<DType::kQ8_0>(task, stream);
    case DType::kQ4_0:
      return EnqueueBlocks<DType::kQ4_0>(task, stream);
    case DType::kQ4_1:
      return EnqueueBlocks<DType::kQ4_1>(task, stream);
    case DType::kQ5_0:
      return EnqueueBlocks<DType::kQ5_0>(task, stream);
    case DType::kQ5_1:
      return EnqueueBlocks<DType::kQ5_1>(task, stream);
    case DType::kQ2K:
      return EnqueueBlocks<DType::kQ2K>(task, stream);
    case DType::kQ3K:
      return EnqueueBlocks<DType::kQ3K>(task, stream);
    case DType::kQ4K:
      return EnqueueBlocks<DType::kQ4K>(task, stream);
    case DType::kQ5K:
      return EnqueueBlocks<DType::kQ5K>(task, stream);
    case DType::kQ6K:
      return EnqueueBlocks<DType::kQ6K>(task, stream);
    case DType::kIq4Nl:
      return EnqueueBlocks<DType::kIq4Nl>(task, stream);
    default:
      return EnqueueBlocks<DType::kIq4Xs>(task, stream);
  }
}

}  // namespace tandem::cuda
