#include "kernels/cuda/peak_kernels.cuh"

namespace tandem::cuda {

Error Launch(const ReadTask& task, Stream stream) {
  return Enqueue<ReadKernel>(task, ReadShape(task.num_words4), stream);
}

}  // namespace tandem::cuda
