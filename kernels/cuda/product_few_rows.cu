#include "kernels/cuda/product_kernels.cuh"

namespace tandem::cuda {
namespace {

template <int kChoice>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr int kCount = NumVariantsOfChoice(DType::kBF16, kChoice);
  return EnqueueVariant<kCount>(task.variant, [&](auto variant) {
    constexpr FewRowsVariant kOf = kFewRowsVariants[kChoice][decltype(variant)::value];
    const FewRowsPlan plan =
        FewRowsPlanOf(task.out.rows, task.num_tiles, task.num_sms, decltype(variant)::value);
    return Enqueue<FewRowsKernel<kRowTileChoices[kChoice], kOf.stage_steps>>(
        {task, plan}, FewRowsShape(plan), stream);
  });
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
