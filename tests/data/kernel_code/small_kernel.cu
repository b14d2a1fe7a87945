// A sum of products of tiles, for tests/kernel_resources_test.py.
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

struct SmallTask {
  const Words4* a = nullptr;
  const Words2* b = nullptr;
  float* sums = nullptr;
  int steps = 0;
};

struct SmallKernel {
  using Task = SmallTask;
  static constexpr int kThreads = 256;
  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    float sums[4] = {};
    TANDEM_UNROLL_BY(1)
    for (int step = 0; step < task.steps; ++step) {
      const Words2 b = Load(task.b + step * kThreads + ThreadIndex());
      MultiplyTile(Load(task.a + step * kThreads + ThreadIndex()), b.words, sums);
    }
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) Store(task.sums + 4 * ThreadIndex() + i, sums[i]);
  }
};

template __global__ void Enter<SmallKernel>(SmallTask);

}  // namespace tandem::cuda
