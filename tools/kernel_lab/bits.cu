#include "kernels/cuda/simt.h"
#include "tools/kernel_lab/bits.h"

namespace tandem::kernel_lab {

struct TileChainKernel {
  using Task = TileChainTask;
  static constexpr int kThreads = cuda::kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    cuda::WaitForKernelsBefore();
    const int64_t lane = int64_t{cuda::BlockX()} * cuda::kWarpSize + cuda::Lane();
    float sums[4];
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = cuda::Load(task.start + lane * 4 + i);
    for (int step = 0; step < task.num_steps; ++step) {
      const int64_t at =
          (int64_t{cuda::BlockX()} * task.num_steps + step) * cuda::kWarpSize + cuda::Lane();
      const cuda::Words4 a = cuda::Load(static_cast<const cuda::Words4*>(task.a) + at);
      const cuda::Words2 b = cuda::Load(static_cast<const cuda::Words2*>(task.b) + at);
      cuda::MultiplyTile(a, b.words, sums);
    }
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) cuda::Store(task.sums + lane * 4 + i, sums[i]);
  }
};

cuda::Error Launch(const TileChainTask& task, cuda::Stream stream) {
  return cuda::Enqueue<TileChainKernel>(task, {.x = task.num_tiles}, stream);
}

}  // namespace tandem::kernel_lab
