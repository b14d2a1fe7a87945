// Products with packed weights of block formats and rows quantised to whole numbers of 8 bits.
//
// The numbers of a step, or of a half of it that has a scale of its own, are multiplied and added
// exactly; the sum, times the scales of both sides, joins its chain in increasing input, then the
// minimum times the sum of the row's numbers. The chains are those of product_kernels.cuh, and like
// there neither rows nor blocks, few or many, have a say in an output's bits.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_BLOCKS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_BLOCKS_CUH_

#include "kernels/cuda/block_numbers.cuh"
#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// A whole number n of less than 22 bits added to these bits makes those of the f32 number
// 1.5 * 2^23 + n, from which a difference, which is exact, is n: converting costs no more.
inline constexpr uint32_t kWholeBits = 0x4B400000;
inline constexpr float kWholeOffset = 0x1.8p23f;

// What a lane multiplies with in a step of a tile of rows, and what it needs for the sums of rows
// lane % 4 * 2 and one more.
struct WholeRow {
  Words2 numbers;
  Words4 notes;  // their scales, then their sums

  //   step: in global or shared memory
  TANDEM_DEVICE void Load(const unsigned char* step) {
    numbers = LoadAt<Words2>(step + Lane() * 8);
    notes = LoadAt<Words4>(step + kWholeRowsNumberBytes + Lane() % 4 * 16);
  }
  TANDEM_DEVICE float scale(int i) const { return BitsToFloat(notes.words[i]); }
  // Of the numbers of a half, or of both.
  template <int kHalves>
  TANDEM_DEVICE int Sum(int i, int half) const {
    const uint32_t sums = notes.words[2 + i];
    const int first = static_cast<int16_t>(sums & 0xFFFF), last = static_cast<int16_t>(sums >> 16);
    return kHalves == 1 ? first + last : half == 0 ? first : last;
  }
};

// The sums of a chain of steps.
template <typename Weight, int kOutputTiles, int kRowTiles>
class BlockChainSums {
 public:
  using Sums = TileSums<kOutputTiles, kRowTiles>;

  TANDEM_DEVICE explicit BlockChainSums(const BlockTiles& tiles)
      : tiles_(Weight::Known(tiles)), sums_{} {}

  // Adds a step, the `step`th of the tiles' pieces, which lie one behind the other.
  TANDEM_DEVICE void Add(const unsigned char* pieces, int step, const WholeRow (&rows)[kRowTiles]) {
    const int piece_bytes = tiles_.piece_bytes();
    TANDEM_UNROLL
    for (int tile = 0; tile < kOutputTiles; ++tile) {
      const unsigned char* const piece = pieces + tile * piece_bytes;
      const Words4 numbers = Weight::Numbers(piece, step, tiles_.has_table);
      const Scales scales = Weight::Scales(piece + Weight::Tiles().scales_at(), step);
      Scales minimums = {};
      if (tiles_.has_minimums) {
        minimums = Weight::Scales(piece + Weight::Tiles().minimums_at(), step);
      }
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        TANDEM_UNROLL
        for (int half = 0; half < Weight::kHalves; ++half) {
          Multiply(numbers, rows[r], half, scales, minimums, sums_[tile][r]);
        }
      }
    }
  }

  TANDEM_DEVICE const Sums& sums() const { return sums_; }
  TANDEM_DEVICE void Clear() {
    ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) { sums_[tile][r][i] = 0.0f; });
  }

 private:
  using Scales = PairScales<Weight::kHalves>;

  TANDEM_DEVICE void Multiply(const Words4& numbers, const WholeRow& row, int half,
                              const Scales& scales, const Scales& minimums, float (&sums)[4]) {
    constexpr int kHalves = Weight::kHalves;
    uint32_t whole[4];
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int zeros = tiles_.zero * row.Sum<kHalves>(i % 2, half);
      whole[i] = kWholeBits - static_cast<uint32_t>(zeros);
    }
    if constexpr (kHalves == 1) {
      MultiplyWholeTile(numbers, row.numbers.words, whole);
    } else {
      MultiplyHalfTile(numbers, row.numbers.words, half, whole);
    }
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float product = BitsToFloat(whole[i]) - kWholeOffset;
      sums[i] = MulAdd(product, scales.of[half][i / 2] * row.scale(i % 2), sums[i]);
      if (tiles_.has_minimums) {
        const float of_row = row.scale(i % 2) * static_cast<float>(row.Sum<kHalves>(i % 2, half));
        sums[i] = MulAdd(minimums.of[half][i / 2], of_row, sums[i]);
      }
    }
  }

  const BlockTiles tiles_;
  Sums sums_;
};

// Begins to copy `bytes`, a multiple of 16, a warp at a time.
TANDEM_DEVICE void CopyBytes(unsigned char* to, const unsigned char* from, int bytes) {
  for (int at = Lane() * 16; at < bytes; at += kWarpSize * 16) CopyAsync16(to + at, from + at);
}

// A weight's piece of a tile; behind the last tile comes the last once more (WeightTile).
TANDEM_DEVICE const unsigned char* PieceAt(const TileProductTask& task, const BlockTiles& tiles,
                                           int tile, int piece) {
  const int64_t of_tile = int64_t{WeightTile(task, tile)} * tiles.num_pieces(task.x.cols);
  return static_cast<const unsigned char*>(task.weight) + (of_tile + piece) * tiles.piece_bytes();
}
// Of tile `tile` of rows.
TANDEM_DEVICE const unsigned char* StepOfRows(const TileProductTask& task, int tile, int step) {
  const int64_t of_tile = int64_t{RowTile(task, tile)} * NumSteps(task.x.cols);
  return static_cast<const unsigned char*>(task.rows) + (of_tile + step) * kWholeRowsStepBytes;
}

// Few rows: a warp has a chain. Its lanes copy the chain's pieces for each other.
template <typename Weight, int kRowTiles>
struct BlockProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kChains * kWarpSize;
  static constexpr int kOutputTiles = kBlockOutputTiles;
  static constexpr int kPieceSteps = Weight::kPieceSteps;
  static_assert(kBlockChainSteps % kPieceSteps == 0);

  // Weights are on their way before the kernels before have ended.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    Chain chain(task.tiles);
    MultiplyChain(task, shared, chain);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    End::StoreSums(chain.sums(), chain_sums + WarpIndex() * (End::kRows * End::kOutputs));
    Barrier();
    End::AddChains(task, chain_sums,
                   [&](int row) { return FactorOf(task, int64_t{BlockX()} * End::kRows + row); });
  }

 private:
  using Chain = BlockChainSums<Weight, kOutputTiles, kRowTiles>;
  using End = ChainEnd<kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static void MultiplyChain(const Task& task, unsigned char* shared, Chain& chain) {
    const int num_steps = NumSteps(task.x.cols);
    const int begin = ChainBegin(WarpIndex(), num_steps, kBlockChainSteps);
    const int end = ChainBegin(WarpIndex() + 1, num_steps, kBlockChainSteps);
    const int stage_bytes = kOutputTiles * Weight::Known(task.tiles).piece_bytes();
    unsigned char* const ring = shared + WarpIndex() * (kBlockStages * stage_bytes);
    TANDEM_UNROLL
    for (int stage = 0; stage < kBlockStages - 1; ++stage) {
      CopyStage(task, begin + stage * kPieceSteps, end, ring + stage * stage_bytes);
    }
    WaitForKernelsBefore();
    WholeRow next[kRowTiles];
    LoadRows(task, begin, end, next);
    int slot = 0;
    for (int step = begin; step < end; step += kPieceSteps) {
      CopyWait<kBlockStages - 2>();
      SyncWarp();  // behind it all lanes have the stage, and none reads the one before any more
      const int free_slot = slot == 0 ? kBlockStages - 1 : slot - 1;
      CopyStage(task, step + (kBlockStages - 1) * kPieceSteps, end, ring + free_slot * stage_bytes);
      TANDEM_UNROLL
      for (int s = 0; s < kPieceSteps; ++s) {
        if (step + s >= end) break;
        WholeRow rows[kRowTiles];
        TANDEM_UNROLL
        for (int r = 0; r < kRowTiles; ++r) rows[r] = next[r];
        LoadRows(task, step + s + 1, end, next);
        chain.Add(ring + slot * stage_bytes, s, rows);
      }
      slot = slot == kBlockStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
  }

  // One group of copies, which may be empty.
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, int end, unsigned char* to) {
    const BlockTiles tiles = Weight::Known(task.tiles);
    TANDEM_UNROLL
    for (int tile = 0; tile < kOutputTiles; ++tile) {
      if (step >= end) continue;
      CopyBytes(to + tile * tiles.piece_bytes(),
                PieceAt(task, tiles, BlockY() * kOutputTiles + tile, step / kPieceSteps),
                tiles.piece_bytes());
    }
    CopyCommit();
  }

  // A step before they are needed.
  TANDEM_DEVICE static void LoadRows(const Task& task, int step, int end,
                                     WholeRow (&rows)[kRowTiles]) {
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      if (step < end) rows[r].Load(StepOfRows(task, BlockX() * kRowTiles + r, step));
    }
  }
};

// Many rows: warps share tiles of both, and each goes through the chains one after the other
// (product_many_rows.cuh).
template <typename Weight>
struct ManyRowsBlockProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kManyRowsWarps * kWarpSize;
  static constexpr int kOutputTiles = kManyRowsOutputTiles / kWarpsAcross;
  static constexpr int kRowTiles = kBlockManyRowTiles / (kManyRowsWarps / kWarpsAcross);
  static constexpr int kPieceSteps = Weight::kPieceSteps;
  static_assert(kManyRowsWarps == kManyRowsOutputTiles && kManyRowsWarps == kBlockManyRowTiles);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    const int num_steps = NumSteps(task.x.cols);
    const int stage_bytes = BlockManyRowsStageBytes(Weight::Known(task.tiles));
    TANDEM_UNROLL
    for (int stage = 0; stage < kBlockStages - 1; ++stage) {
      CopyStage(task, stage * kPieceSteps, shared + stage * stage_bytes);
    }
    const int chain_steps = ChainSteps(num_steps, kBlockChainSteps);
    int chain_end = chain_steps;
    Chain chain(task.tiles);
    typename Chain::Sums totals = {};
    int slot = 0;
    for (int step = 0; step < num_steps; step += kPieceSteps) {
      CopyWait<kBlockStages - 2>();
      Barrier();  // behind it all have the stage, and nobody reads the one before any more
      const int free_slot = slot == 0 ? kBlockStages - 1 : slot - 1;
      CopyStage(task, step + (kBlockStages - 1) * kPieceSteps, shared + free_slot * stage_bytes);
      MultiplyStage(task, step, num_steps, shared + slot * stage_bytes, chain);
      if (step + kPieceSteps >= chain_end || step + kPieceSteps >= num_steps) {
        ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) {
          totals[tile][r][i] = totals[tile][r][i] + chain.sums()[tile][r][i];
        });
        chain.Clear();
        chain_end += chain_steps;
      }
      slot = slot == kBlockStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      int64_t{BlockX()} * kBlockManyRowTiles + FirstRowTile(),
                                      totals);
  }

 private:
  using Chain = BlockChainSums<Weight, kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static int FirstOutputTile() { return WarpIndex() % kWarpsAcross * kOutputTiles; }
  TANDEM_DEVICE static int FirstRowTile() { return WarpIndex() / kWarpsAcross * kRowTiles; }
  // A stage in shared memory: [output tiles] of a piece, then [row tiles][steps].
  TANDEM_DEVICE static int RowsAt(const Task& task, int tile, int step) {
    return kManyRowsOutputTiles * Weight::Known(task.tiles).piece_bytes() +
           (tile * kPieceSteps + step) * kWholeRowsStepBytes;
  }

  // One group of copies, which may be empty: each warp's tile of outputs, and of rows.
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, unsigned char* stage) {
    const BlockTiles tiles = Weight::Known(task.tiles);
    const int left = NumSteps(task.x.cols) - step;
    if (left > 0) {
      const int tile = BlockY() * kManyRowsOutputTiles + WarpIndex();
      CopyBytes(stage + WarpIndex() * tiles.piece_bytes(),
                PieceAt(task, tiles, tile, step / kPieceSteps), tiles.piece_bytes());
      const int row_steps = left < kPieceSteps ? left : kPieceSteps;
      CopyBytes(stage + RowsAt(task, WarpIndex(), 0),
                StepOfRows(task, BlockX() * kBlockManyRowTiles + WarpIndex(), step),
                row_steps * kWholeRowsStepBytes);
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(const Task& task, int first_step, int num_steps,
                                          const unsigned char* stage, Chain& chain) {
    const int pieces_at = FirstOutputTile() * Weight::Known(task.tiles).piece_bytes();
    TANDEM_UNROLL
    for (int s = 0; s < kPieceSteps; ++s) {
      if (first_step + s >= num_steps) return;
      WholeRow rows[kRowTiles];
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) rows[r].Load(stage + RowsAt(task, FirstRowTile() + r, s));
      chain.Add(stage + pieces_at, s, rows);
    }
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_BLOCKS_CUH_
