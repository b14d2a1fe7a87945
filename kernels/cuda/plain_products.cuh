// What surrounds products that cuBLASLt computes (cublas_products.h): weights and sums in plain
// rows.
#ifndef TANDEM_KERNELS_CUDA_PLAIN_PRODUCTS_CUH_
#define TANDEM_KERNELS_CUDA_PLAIN_PRODUCTS_CUH_

#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// A warp unpacks a step of a tile of a weight.
struct UnpackTilesKernel {
  using Task = UnpackTilesTask;
  static constexpr int kThreads = kPackWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int step = BlockX() * kPackWarps + WarpIndex();
    if (step >= task.num_steps) return;
    const int64_t tile = BlockY();
    const auto* const from =
        static_cast<const Words4*>(task.packed) + (tile * task.num_steps + step) * kBf16StepWords4;
    auto* const to = static_cast<uint32_t*>(task.out);
    for (int half = 0; half < kBf16Pieces; ++half) {
      const Words4 words = Load(from + half * kWarpSize + Lane());
      for (int word = 0; word < 4; ++word) {
        const PlaceInTile at = WeightPlace(half, Lane(), word);
        const int64_t row = tile * kTileOutputs + at.output;
        Store(to + ((row * task.num_steps + step) * kStepInputs + at.input) / 2, words.words[word]);
      }
    }
  }
};

// A thread ends an output of a row.
struct EndSumsKernel {
  using Task = EndSumsTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    constexpr int kHalf = kTileOutputs / 2;
    const int place = BlockX() * kThreads + ThreadIndex();
    const int tile = place / kTileOutputs, output = place % kTileOutputs;
    const bool is_pair = IsGated(task.product.end);
    if (tile >= task.product.num_tiles || (is_pair && output >= kHalf)) return;
    const float* const sum = RowOf(task.sums, BlockY()) + place;
    EndOutput(task.product, BlockY(), tile, output, FactorOf(task.product, BlockY()), Load(sum),
              is_pair ? Load(sum + kHalf) : 0.0f);
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PLAIN_PRODUCTS_CUH_
