#include "kernels/cuda/row_kernels.cuh"

namespace tandem::cuda {

Error Launch(const EmbedTask& task, Stream stream) {
  if (IsBlocks(task.table.dtype)) {
    return Enqueue<EmbedBlocksKernel>(task, RowShape(task.out.rows), stream);
  }
  return Enqueue<EmbedKernel>(task, RowShape(task.out.rows), stream);
}

Error Launch(const GatherRowsTask& task, Stream stream) {
  return Enqueue<GatherRowsKernel>(task, RowShape(task.out.rows), stream);
}

Error Launch(const FindLargestTask& task, Stream stream) {
  return Enqueue<FindLargestKernel>(task, LargestShape(task.x.rows), stream);
}

Error Launch(const RmsNormTask& task, Stream stream) {
  return Enqueue<RmsNormKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const SubtractMeanTask& task, Stream stream) {
  return Enqueue<SubtractMeanKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const ScaleAndCapTask& task, Stream stream) {
  return Enqueue<ScaleAndCapKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const AddScaledTask& task, Stream stream) {
  return Enqueue<AddScaledKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const RotaryAnglesTask& task, Stream stream) {
  return Enqueue<RotaryAnglesKernel>(task, RowShape(task.out.rows), stream);
}

}  // namespace tandem::cuda
