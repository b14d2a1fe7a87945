// Products of many rows, as prompts have, with packed weights of bf16, int8 and int4.
//
// A block computes many tiles of rows by many tiles of outputs, so that each is read once for all
// of the others; its warps share them in shared memory. Each warp has all inputs of its tiles: the
// chains of product_kernels.cuh one after the other, in the same order and with the same bits.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_

#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

template <typename Weight, int kBlockRowTiles>
struct ManyRowsProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kManyRowsWarps * kWarpSize;
  static constexpr int kOutputTiles = kManyRowsOutputTiles / kWarpsAcross;
  static constexpr int kRowTiles = kBlockRowTiles / (kManyRowsWarps / kWarpsAcross);
  static constexpr int kStageSteps = Weight::kPieceSteps;
  // A stage in shared memory: [output tiles][pieces], then [row tiles][steps], of 512 bytes each.
  static constexpr int kWeightParts = kManyRowsOutputTiles * Weight::kPieces;
  static constexpr int kStageParts = kWeightParts + kBlockRowTiles * kStageSteps;
  static constexpr int kStageWords4 = kStageParts * kWarpSize;
  static constexpr int kStages = kManyRowsRingBytes / 16 / kStageWords4;
  static_assert(kStageParts % kManyRowsWarps == 0 && kStages >= 3);
  static_assert(Weight::kChainUnit % kStageSteps == 0);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* bytes) {
    WaitForKernelsBefore();
    auto* const shared = reinterpret_cast<Words4*>(bytes);
    const int num_steps = NumSteps(task.x.cols);
    TANDEM_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) {
      CopyStage(task, stage * kStageSteps, shared + stage * kStageWords4);
    }
    const int chain_steps = ChainSteps(num_steps, Weight::kChainUnit);
    int chain_end = chain_steps;
    Chain chain(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(), 0, num_steps);
    typename Chain::Sums totals = {};
    int slot = 0;
    for (int step = 0; step < num_steps; step += kStageSteps) {
      CopyWait<kStages - 2>();
      Barrier();  // behind it all have the stage, and nobody reads the one before any more
      const int free_slot = slot == 0 ? kStages - 1 : slot - 1;
      CopyStage(task, step + (kStages - 1) * kStageSteps, shared + free_slot * kStageWords4);
      MultiplyStage(step, num_steps, shared + slot * kStageWords4, chain);
      if (step + kStageSteps >= chain_end || step + kStageSteps >= num_steps) {
        ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) {
          totals[tile][r][i] = totals[tile][r][i] + chain.sums()[tile][r][i];
        });
        chain.Clear();
        chain_end += chain_steps;
      }
      slot = slot == kStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      int64_t{BlockX()} * kBlockRowTiles + FirstRowTile(), totals);
  }

 private:
  using Chain = ChainSums<Weight, kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static int FirstOutputTile() { return WarpIndex() % kWarpsAcross * kOutputTiles; }
  TANDEM_DEVICE static int FirstRowTile() { return WarpIndex() / kWarpsAcross * kRowTiles; }

  // One group of copies, each warp every so many parts; it may be empty.
  TANDEM_DEVICE static void CopyStage(const Task& task, int first_step, Words4* stage) {
    const int num_steps = NumSteps(task.x.cols);
    const auto* const weights = static_cast<const Words4*>(task.weight);
    const auto* const rows = static_cast<const Words4*>(task.rows);
    const int per_tile = CeilDiv(num_steps, kStageSteps);
    TANDEM_UNROLL
    for (int i = 0; i < kStageParts / kManyRowsWarps; ++i) {
      const int part = i * kManyRowsWarps + WarpIndex();
      const Words4* from = nullptr;
      if (part < kWeightParts) {
        const int tile = WeightTile(task, BlockY() * kManyRowsOutputTiles + part / Weight::kPieces);
        const int64_t piece = int64_t{tile} * per_tile + first_step / kStageSteps;
        if (first_step < num_steps) {
          from = weights + (piece * Weight::kPieces + part % Weight::kPieces) * kWarpSize;
        }
      } else {
        const int row_part = part - kWeightParts;
        const int64_t tile = RowTile(task, BlockX() * kBlockRowTiles + row_part / kStageSteps);
        const int step = first_step + row_part % kStageSteps;
        if (step < num_steps) from = rows + (tile * num_steps + step) * kWarpSize;
      }
      if (from != nullptr) CopyAsync16(stage + part * kWarpSize + Lane(), from + Lane());
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(int first_step, int num_steps, const Words4* stage,
                                          Chain& chain) {
    const Words4* const weights = stage + FirstOutputTile() * Weight::kPieces * kWarpSize + Lane();
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      if (first_step + s >= num_steps) return;
      Words4 rows[kRowTiles];
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const int part = kWeightParts + (FirstRowTile() + r) * kStageSteps + s;
        rows[r] = Load(stage + part * kWarpSize + Lane());
      }
      chain.Add(first_step + s, weights, Weight::kPieces * kWarpSize, s, rows);
    }
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_MANY_ROWS_CUH_
