#include "kernels/cuda/kv_rows_kernels.cuh"

namespace tandem::cuda {

Error Launch(const RotateAndCacheTask& task, Stream stream) {
  const int num_heads = task.num_heads + 2 * task.kv.num_kv_heads;
  return Enqueue<RotateAndCacheKernel>(task, HeadShape(task.qkv.rows, num_heads, task.kv.head_dim),
                                       stream);
}

}  // namespace tandem::cuda
