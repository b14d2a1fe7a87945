#include "kernels/cuda/block_product.cuh"

namespace tandem::cuda {

// Many rows: warps share tiles of weights and of rows, and each processes all chains one after the
// other (product.cu).
template <typename Weight>
struct ManyRowsBlockProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kManyRowsWarps * kWarpSize;
  static constexpr int kOutputTiles = kManyRowsOutputTiles / kWarpsAcross;
  static constexpr int kRowTiles = kBlockManyRowTiles / (kManyRowsWarps / kWarpsAcross);
  static constexpr int kPieceSteps = Weight::kPieceSteps;
  // A stage in shared memory: [output tiles] of a piece, then [row tiles][steps].
  static constexpr int kRowsAt = kManyRowsOutputTiles * Weight::kPieceBytes;
  static constexpr int kRowTileBytes = kPieceSteps * kWholeRowsStepBytes;
  static constexpr int kStageBytes = kRowsAt + kBlockManyRowTiles * kRowTileBytes;
  static_assert(kManyRowsWarps == kManyRowsOutputTiles && kManyRowsWarps == kBlockManyRowTiles);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    const int num_steps = NumSteps(task.x.cols);
    const int num_pieces = CeilDiv(num_steps, kPieceSteps);
    const int chain_pieces = ChainSteps(num_steps) / kPieceSteps;
    Copies copies(task, num_pieces);
    TANDEM_UNROLL
    for (int stage = 0; stage < kBlockManyRowStages - 1; ++stage) {
      copies.Next(shared + stage * kStageBytes);
    }
    int chain_end = chain_pieces;
    Sums chain = {};
    Sums totals = {};
    int slot = 0;
    for (int piece = 0; piece < num_pieces; ++piece) {
      CopyWait<kBlockManyRowStages - 2>();
      Barrier();  // all threads have the stage, and none reads the previous one
      const int free_slot = slot == 0 ? kBlockManyRowStages - 1 : slot - 1;
      copies.Next(shared + free_slot * kStageBytes);
      MultiplyStage(shared + slot * kStageBytes, chain);
      if (piece + 1 == chain_end || piece + 1 == num_pieces) {
        EndChain<kOutputTiles, kRowTiles>(chain, totals);
        chain_end += chain_pieces;
      }
      slot = slot == kBlockManyRowStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    Barrier();  // none reads the last stages
    auto* const factors = reinterpret_cast<float*>(shared);
    const int64_t first_row_tile = int64_t{BlockX()} * kBlockManyRowTiles;
    StoreFactors(task, first_row_tile * kTileRows, kBlockManyRowTiles * kTileRows, WarpIndex(),
                 kManyRowsWarps, factors);
    Barrier();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      first_row_tile + FirstRowTile(), totals,
                                      factors + FirstRowTile() * kTileRows);
  }

 private:
  using Sums = TileSums<kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static int FirstOutputTile() { return WarpIndex() % kWarpsAcross * kOutputTiles; }
  TANDEM_DEVICE static int FirstRowTile() { return WarpIndex() / kWarpsAcross * kRowTiles; }

  // The tile of outputs and the tile of rows that a warp copies.
  struct Copies {
    const unsigned char* weight;  // the lane's part
    const unsigned char* rows;
    int left;

    TANDEM_DEVICE Copies(const Task& task, int num_pieces)
        : weight(PiecesOf<Weight>(task, BlockY() * kManyRowsOutputTiles + WarpIndex()) +
                 Lane() * 16),
          rows(StepsOfRows(task, BlockX() * kBlockManyRowTiles + WarpIndex()) + Lane() * 16),
          left(num_pieces) {}
    // Issues one group of copies, which may be empty.
    TANDEM_DEVICE void Next(unsigned char* stage) {
      if (left > 0) {
        unsigned char* const lane = stage + Lane() * 16;
        CopyBytes<Weight::kPieceBytes>(lane + WarpIndex() * Weight::kPieceBytes, weight);
        CopyBytes<kRowTileBytes>(lane + kRowsAt + WarpIndex() * kRowTileBytes, rows);
        weight += Weight::kPieceBytes;
        rows += kRowTileBytes;
      }
      --left;
      CopyCommit();
    }
  };

  TANDEM_DEVICE static void MultiplyStage(const unsigned char* stage, Sums& sums) {
    const unsigned char* const rows_at = stage + kRowsAt + FirstRowTile() * kRowTileBytes;
    TANDEM_UNROLL
    for (int s = 0; s < kPieceSteps; ++s) {
      WholeRow rows[kRowTiles];
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const unsigned char* const at = rows_at + r * kRowTileBytes;
        rows[r].Load(at + WholeRow::NumbersAt(), at + WholeRow::NotesAt(), s);
      }
      MultiplyBlocks<Weight, kOutputTiles, kRowTiles>(
          stage + FirstOutputTile() * Weight::kPieceBytes, s, rows, sums);
    }
  }
};

Error LaunchManyRowsBlocks(const TileProductTask& task, Stream stream) {
  return EnqueueFormat(task.dtype, [&](auto format) {
    constexpr DType kDType = decltype(format)::value;
    return Enqueue<ManyRowsBlockProductKernel<BlockWeight<kDType>>>(
        task, ManyRowsShape(kDType, task.out.rows, task.num_tiles), stream);
  });
}

}  // namespace tandem::cuda
