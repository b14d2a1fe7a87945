#include "kernels/cuda/block_product.cuh"

namespace tandem::cuda {

// Few rows: each warp has one chain. Its lanes copy the chain's pieces for each other.
template <typename Weight, int kRowTiles, int kOutputTiles, int kStages>
struct BlockProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kChains * kWarpSize;
  static constexpr int kBlocks = kRowTiles == 1 ? 3 : kRowTiles == 2 ? 2 : 1;
  static constexpr int kPieceSteps = Weight::kPieceSteps;
  static constexpr int kStageBytes = kOutputTiles * Weight::kPieceBytes;
  static_assert(kBlockChainSteps % kPieceSteps == 0);

  // Starts to copy weights while the kernels before this one still run.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    Sums sums = {};
    MultiplyChain(task, shared + WarpIndex() * (kStages * kStageBytes), sums);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    float* const factors = chain_sums + kChains * End::kRows * End::kOutputs;
    StoreFactors(task, int64_t{BlockX()} * End::kRows, End::kRows, WarpIndex(), kChains, factors);
    End::StoreSums(sums, chain_sums + WarpIndex() * (End::kRows * End::kOutputs));
    Barrier();
    End::AddChains(task, chain_sums, factors);
  }

 private:
  using Sums = TileSums<kOutputTiles, kRowTiles>;
  using End = ChainEnd<kOutputTiles, kRowTiles>;

  // The pieces of a chain that have not been copied yet.
  struct Copies {
    const unsigned char* from[kOutputTiles];  // the lane's part
    int left;

    // Issues one group of copies, which may be empty.
    TANDEM_DEVICE void Next(unsigned char* stage) {
      if (left > 0) {
        TANDEM_UNROLL
        for (int tile = 0; tile < kOutputTiles; ++tile) {
          CopyBytes<Weight::kPieceBytes>(stage + tile * Weight::kPieceBytes + Lane() * 16,
                                         from[tile]);
          from[tile] += Weight::kPieceBytes;
        }
      }
      --left;
      CopyCommit();
    }
  };

  // The rows of a chain that have not been read yet. They are read one step ahead.
  struct Rows {
    const unsigned char* numbers[kRowTiles];  // the lane's part
    const unsigned char* notes[kRowTiles];

    TANDEM_DEVICE void Begin(const Task& task, int step) {
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const unsigned char* const at =
            StepsOfRows(task, BlockX() * kRowTiles + r) + int64_t{step} * kWholeRowsStepBytes;
        numbers[r] = at + WholeRow::NumbersAt();
        notes[r] = at + WholeRow::NotesAt();
      }
    }
    TANDEM_DEVICE void Read(int step, WholeRow (&rows)[kRowTiles]) const {
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) rows[r].Load(numbers[r], notes[r], step);
    }
    TANDEM_DEVICE void NextPiece() {
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        numbers[r] += kPieceSteps * kWholeRowsStepBytes;
        notes[r] += kPieceSteps * kWholeRowsStepBytes;
      }
    }
  };

  TANDEM_DEVICE static void MultiplyChain(const Task& task, unsigned char* ring, Sums& sums) {
    const int num_steps = NumSteps(task.x.cols);
    const int begin = ChainBegin(WarpIndex(), num_steps);
    const int end = ChainBegin(WarpIndex() + 1, num_steps);
    const int num_pieces = CeilDiv(end - begin, kPieceSteps);
    Copies copies;
    copies.left = num_pieces;
    TANDEM_UNROLL
    for (int tile = 0; tile < kOutputTiles; ++tile) {
      copies.from[tile] = PiecesOf<Weight>(task, BlockY() * kOutputTiles + tile) +
                          int64_t{begin / kPieceSteps} * Weight::kPieceBytes + Lane() * 16;
    }
    TANDEM_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) copies.Next(ring + stage * kStageBytes);
    WaitForKernelsBefore();
    Rows rows;
    rows.Begin(task, begin);
    WholeRow next[kRowTiles];
    if (num_pieces > 0) rows.Read(0, next);
    int slot = 0;
    for (int piece = 0; piece < num_pieces; ++piece) {
      CopyWait<kStages - 2>();
      SyncWarp();  // all lanes have the stage, and none reads the previous one
      const int free_slot = slot == 0 ? kStages - 1 : slot - 1;
      copies.Next(ring + free_slot * kStageBytes);
      TANDEM_UNROLL
      for (int s = 0; s < kPieceSteps; ++s) {
        WholeRow now[kRowTiles];
        TANDEM_UNROLL
        for (int r = 0; r < kRowTiles; ++r) now[r] = next[r];
        if (s + 1 < kPieceSteps || piece + 1 < num_pieces) rows.Read(s + 1, next);
        MultiplyBlocks<Weight, kOutputTiles, kRowTiles>(ring + slot * kStageBytes, s, now, sums);
      }
      rows.NextPiece();
      slot = slot == kStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
  }
};

namespace {

template <DType kDType, int kChoice>
Error EnqueueFewRowsBlocks(const TileProductTask& task, Stream stream) {
  return EnqueueVariant<NumVariantsOfChoice(kDType, kChoice)>(task.variant, [&](auto variant) {
    constexpr int kVariant = decltype(variant)::value;
    constexpr ProductTiles kTiles = FewBlockRowsTiles(kChoice, kVariant);
    constexpr int kStages = kBlocksVariants[BlocksChoice(kChoice)][kVariant].stages;
    return Enqueue<BlockProductKernel<BlockWeight<kDType>, kTiles.rows, kTiles.outputs, kStages>>(
        task, FewBlockRowsShape(kDType, task.out.rows, task.num_tiles, kVariant), stream);
  });
}

}  // namespace

Error LaunchFewRowsBlocks(const TileProductTask& task, Stream stream) {
  return EnqueueFormat(task.dtype, [&](auto format) {
    constexpr DType kDType = decltype(format)::value;
    static_assert(kNumBlocksRowTileChoices == 3);
    switch (BlocksChoice(RowTilesFor(task.out.rows))) {
      case 0:
        return EnqueueFewRowsBlocks<kDType, 0>(task, stream);
      case 1:
        return EnqueueFewRowsBlocks<kDType, 1>(task, stream);
      default:
        return EnqueueFewRowsBlocks<kDType, 2>(task, stream);
    }
  });
}

}  // namespace tandem::cuda
