#include "kernels/cuda/product_kernels.cuh"

namespace tandem::cuda {
namespace {

// Enqueues the variant of the task, which is kVariant or a later one.
template <int kChoice, int kVariant = 0>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  if constexpr (kVariant + 1 < NumVariantsOfChoice(DType::kBF16, kChoice)) {
    if (task.variant > kVariant) return EnqueueFewRows<kChoice, kVariant + 1>(task, stream);
  }
  constexpr FewRowsVariant kOf = kFewRowsVariants[kChoice][kVariant];
  return Enqueue<TileProductKernel<kRowTileChoices[kChoice], kOf.output_tiles, kOf.copy_stages,
                                   kOf.stage_steps>>(
      task, FewRowsShape(DType::kBF16, task.out.rows, task.num_tiles, kVariant), stream);
}

}  // namespace

Error LaunchFewRowsBf16(const TileProductTask& task, Stream stream) {
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

}  // namespace tandem::cuda
