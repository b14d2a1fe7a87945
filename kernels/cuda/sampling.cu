#include "kernels/cuda/sampling_kernels.cuh"

namespace tandem::cuda {

Error Launch(const DistributionsTask& task, Stream stream) {
  return Enqueue<DistributionKernel>(task, SamplingShape(task.num_rows), stream);
}

Error Launch(const SlotsTask& task, Stream stream) {
  return Enqueue<SlotKernel>(task, SamplingShape(task.num_slots), stream);
}

Error Launch(const TakeDrawnTask& task, Stream stream) {
  return Enqueue<TakeDrawnKernel>(task, DrawnShape(task.count), stream);
}

}  // namespace tandem::cuda
