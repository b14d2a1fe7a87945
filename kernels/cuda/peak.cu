#include "kernels/cuda/operations.h"
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

struct ReadKernel {
  using Task = ReadTask;
  static constexpr int kThreads = kReadThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const auto* const words = static_cast<const Words4*>(task.data);
    const int64_t first = int64_t{BlockX()} * kReadBlockWords4 + ThreadIndex();
    uint32_t sum = 0;
    TANDEM_UNROLL
    for (int i = 0; i < kReadsOfThread; ++i) {
      const int64_t at = first + i * kThreads;
      if (at >= task.num_words4) continue;
      const Words4 read = Load(words + at);
      sum ^= read.words[0] ^ read.words[1] ^ read.words[2] ^ read.words[3];
    }
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) sum ^= ShuffleXor(sum, mask);
    if (Lane() == 0) {
      Store(task.sums + int64_t{BlockX()} * kReadSumsOfBlock + WarpIndex(), sum);
    }
  }
};

Error Launch(const ReadTask& task, Stream stream) {
  return Enqueue<ReadKernel>(task, ReadShape(task.num_words4), stream);
}

}  // namespace tandem::cuda
