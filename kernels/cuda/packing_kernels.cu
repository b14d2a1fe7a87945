#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

// One thread for each pair of inputs of an output.
struct PackOutputsKernel {
  using Task = PackOutputsTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    constexpr int kStepPairs = kStepInputs / 2;
    const int num_pairs = CeilDiv(task.inputs, 2), num_steps = NumSteps(task.inputs);
    const int pair = BlockY() * kThreads + ThreadIndex(), step = pair / kStepPairs;
    if (step >= num_steps) return;
    uint32_t numbers = 0;
    if (task.rows != nullptr && pair < num_pairs) {
      numbers =
          Load(static_cast<const uint32_t*>(task.rows) + int64_t{BlockX()} * num_pairs + pair);
    }
    const int place = task.places.Of(task.first + BlockX());
    const int64_t at = (int64_t{place / kTileOutputs} * num_steps + step) * kWeightStepWords;
    Store(static_cast<uint32_t*>(task.packed) + at +
              WordOfWeight(place % kTileOutputs, pair % kStepPairs * 2),
          numbers);
  }
};

Error Launch(const PackOutputsTask& task, Stream stream) {
  return Enqueue<PackOutputsKernel>(task, PackOutputsShape(task.num_rows, task.inputs), stream);
}

}  // namespace tandem::cuda
