// Products of many rows, as prompts have, with packed weights of bf16.
//
// A block computes many tiles of rows by many tiles of outputs, so that each is read once for all
// of the others; its warps share them in shared memory. Each warp has all inputs of its tiles, in
// the order and with the bits of product_kernels.cuh.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_

#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

struct ManyRowsProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kManyRowsWarps * kWarpSize;
  static constexpr int kOutputTiles = kManyRowsOutputTiles / kWarpsAcross;
  static constexpr int kRowTiles = kManyRowsRowTiles / (kManyRowsWarps / kWarpsAcross);
  // A stage, which is a step, in shared memory: [output tiles][halves], then [row tiles], of 512
  // bytes each.
  static constexpr int kWeightParts = kManyRowsOutputTiles * kBf16Pieces;
  static constexpr int kStageParts = kWeightParts + kManyRowsRowTiles;
  static constexpr int kStageWords4 = kStageParts * kWarpSize;
  static constexpr int kStages = kManyRowsRingBytes / 16 / kStageWords4;
  static_assert(kStageParts % kManyRowsWarps == 0 && kStages >= 3);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<Words4*>(bytes);
    const int num_steps = NumSteps(task.x.cols);
    TANDEM_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) {
      CopyStage(task, stage, shared + stage * kStageWords4);
    }
    Sums sums = {};
    int slot = 0;
    for (int step = 0; step < num_steps; ++step) {
      CopyWait<kStages - 2>();
      Barrier();  // behind it all have the stage, and nobody reads the one before any more
      const int free_slot = slot == 0 ? kStages - 1 : slot - 1;
      CopyStage(task, step + kStages - 1, shared + free_slot * kStageWords4);
      MultiplyStage(shared + slot * kStageWords4, sums);
      slot = slot == kStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      int64_t{BlockX()} * kManyRowsRowTiles + FirstRowTile(), sums,
                                      [&](int64_t row) { return FactorOf(task, row); });
  }

 private:
  using Sums = TileSums<kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static int FirstOutputTile() { return WarpIndex() % kWarpsAcross * kOutputTiles; }
  TANDEM_DEVICE static int FirstRowTile() { return WarpIndex() / kWarpsAcross * kRowTiles; }

  // One group of copies, each warp every so many parts; it may be empty.
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, Words4* stage) {
    const int num_steps = NumSteps(task.x.cols);
    const auto* const weights = static_cast<const Words4*>(task.weight);
    const auto* const rows = static_cast<const Words4*>(task.rows);
    TANDEM_UNROLL
    for (int i = 0; i < kStageParts / kManyRowsWarps; ++i) {
      const int part = i * kManyRowsWarps + WarpIndex();
      if (step >= num_steps) continue;
      const Words4* from = nullptr;
      if (part < kWeightParts) {
        const int tile = WeightTile(task, BlockY() * kManyRowsOutputTiles + part / kBf16Pieces);
        const int64_t at = int64_t{tile} * num_steps + step;
        from = weights + (at * kBf16Pieces + part % kBf16Pieces) * kWarpSize;
      } else {
        const int64_t tile = RowTile(task, BlockX() * kManyRowsRowTiles + part - kWeightParts);
        from = rows + (tile * num_steps + step) * kWarpSize;
      }
      CopyAsync16(stage + part * kWarpSize + Lane(), from + Lane());
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(const Words4* stage, Sums& sums) {
    Words4 rows[kRowTiles];
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      rows[r] = Load(stage + (kWeightParts + FirstRowTile() + r) * kWarpSize + Lane());
    }
    MultiplyBf16<kOutputTiles, kRowTiles>(stage + FirstOutputTile() * kBf16StepWords4 + Lane(),
                                          rows, sums);
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_
