#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/warp_math.cuh"

// Kernels that run only while weights are loaded.
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
    uint32_t numbers = 0;
    if (task.rows != nullptr && pair < num_pairs) {
      numbers =
          Load(static_cast<const uint32_t*>(task.rows) + int64_t{BlockX()} * num_pairs + pair);
    }
    if (task.num_rounded != nullptr) numbers = RoundedToBf16(numbers, task.num_rounded);
    if (step >= num_steps) return;
    const int place = task.places.Of(task.first + BlockX());
    const int64_t at = (int64_t{place / kTileOutputs} * num_steps + step) * kWeightStepWords;
    Store(static_cast<uint32_t*>(task.packed) + at +
              WordOfWeight(place % kTileOutputs, pair % kStepPairs * 2),
          numbers);
  }

 private:
  // Rounds two numbers of f16.
  TANDEM_DEVICE static uint32_t RoundedToBf16(uint32_t numbers, uint32_t* num_rounded) {
    const float low = F16ToFloat(numbers & 0xFFFF), high = F16ToFloat(numbers >> 16);
    const uint32_t packed = PackBf16(low, high);
    const uint32_t count = SumOfLanes((FloatToBits(Bf16Low(packed)) != FloatToBits(low) ? 1 : 0) +
                                      (FloatToBits(Bf16High(packed)) != FloatToBits(high) ? 1 : 0));
    if (Lane() == 0 && count > 0) AtomicAdd(num_rounded, count);
    return packed;
  }
};

Error Launch(const PackOutputsTask& task, Stream stream) {
  return Enqueue<PackOutputsKernel>(task, PackOutputsShape(task.num_rows, task.inputs), stream);
}

// ---- Comparing the sums of products (cublas_products.h) ----

struct CountDifferencesKernel {
  using Task = CountDifferencesTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const auto* const a = static_cast<const uint32_t*>(task.a);
    const auto* const b = static_cast<const uint32_t*>(task.b);
    const int64_t stride = int64_t{CountDifferencesShape(task.num_words).x} * kThreads;
    uint32_t count = 0;
    for (int64_t i = int64_t{BlockX()} * kThreads + ThreadIndex(); i < task.num_words;
         i += stride) {
      count += Load(a + i) != Load(b + i) ? 1 : 0;
    }
    count = SumOfLanes(count);
    constexpr int kWarps = kThreads / kWarpSize;
    if (Lane() == 0) Store(task.counts + BlockX() * kWarps + WarpIndex(), count);
  }
};

Error Launch(const CountDifferencesTask& task, Stream stream) {
  return Enqueue<CountDifferencesKernel>(task, CountDifferencesShape(task.num_words), stream);
}

}  // namespace tandem::cuda
