// Products with packed weights of block formats and rows quantised to integers of 8 bits.
//
// The numbers of a step, or of each half of it if halves have their own scales, are multiplied and
// added exactly. The sum, times the scales of both sides, is added to its chain in increasing order
// of inputs; then the minimum times the sum of the row's numbers is added. The inputs of an output
// are divided into kChains chains, which are added in order. So its bits do not depend on the
// number of rows, or on whether blocks are for few or many rows.
#include "kernels/cuda/block_numbers.cuh"
#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// Adding an integer n of less than 22 bits to these bits gives the bits of the f32 number 1.5 *
// 2^23 + n. Subtracting kWholeOffset from that gives n exactly, so the conversion costs one
// subtraction.
inline constexpr uint32_t kWholeBits = 0x4B400000;
inline constexpr float kWholeOffset = 0x1.8p23f;

// A lane's part of a step of a tile of rows (product_layout.h).
struct WholeRow {
  Words2 numbers;
  Words4 notes;  // scales, then sums of numbers, of rows lane % 4 * 2 and the next one

  // Loads the `step`th step after the start of the lane's numbers and notes.
  TANDEM_DEVICE void Load(const unsigned char* numbers_at, const unsigned char* notes_at,
                          int step) {
    numbers = LoadAt<Words2>(numbers_at + step * kWholeRowsStepBytes);
    notes = LoadAt<Words4>(notes_at + step * kWholeRowsStepBytes);
  }
  TANDEM_DEVICE static int NumbersAt() { return Lane() * 8; }
  TANDEM_DEVICE static int NotesAt() { return kWholeRowsNumberBytes + Lane() % 4 * 16; }

  TANDEM_DEVICE float scale(int i) const { return BitsToFloat(notes.words[i]); }
  // Returns the sum of the numbers of a half, or of both halves.
  template <int kHalves>
  TANDEM_DEVICE int Sum(int i, int half) const {
    const uint32_t sums = notes.words[2 + i];
    const int first = static_cast<int16_t>(sums & 0xFFFF), last = static_cast<int16_t>(sums >> 16);
    return kHalves == 1 ? first + last : half == 0 ? first : last;
  }
};

// The terms of a step of a tile of rows that all outputs share.
template <typename Weight>
struct RowTerms {
  uint32_t first[Weight::kHalves][2];  // initial values of integer sums
  float sums[Weight::kHalves][2];      // factors of minimums

  TANDEM_DEVICE void Set(const WholeRow& row) {
    TANDEM_UNROLL
    for (int i = 0; i < 2 * Weight::kHalves; ++i) {
      const int sum = row.Sum<Weight::kHalves>(i % 2, i / 2);
      first[i / 2][i % 2] = kWholeBits - static_cast<uint32_t>(Weight::kZero * sum);
      sums[i / 2][i % 2] = row.scale(i % 2) * static_cast<float>(sum);
    }
  }
};

template <typename Weight>
TANDEM_DEVICE void MultiplyHalf(const Words4& numbers, const WholeRow& row,
                                const RowTerms<Weight>& terms, int half,
                                const PairScales<Weight::kHalves>& scales,
                                const PairScales<Weight::kHalves>& minimums, float (&sums)[4]) {
  uint32_t whole[4];
  if constexpr (Weight::kHalves == 1) {
    MultiplyWholeTile(numbers, row.numbers.words, terms.first[half], whole);
  } else {
    MultiplyHalfTile(numbers, row.numbers.words, half, terms.first[half], whole);
  }
  TANDEM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float product = BitsToFloat(whole[i]) - kWholeOffset;
    sums[i] = MulAdd(product, scales.of[half][i / 2] * row.scale(i % 2), sums[i]);
    if constexpr (Weight::kHasMinimums) {
      sums[i] = MulAdd(minimums.of[half][i / 2], terms.sums[half][i % 2], sums[i]);
    }
  }
}

// Adds step `step` of the tiles' pieces, which are contiguous.
template <typename Weight, int kOutputTiles, int kRowTiles>
TANDEM_DEVICE void MultiplyBlocks(const unsigned char* pieces, int step,
                                  const WholeRow (&rows)[kRowTiles],
                                  TileSums<kOutputTiles, kRowTiles>& sums) {
  RowTerms<Weight> terms[kRowTiles];
  TANDEM_UNROLL
  for (int r = 0; r < kRowTiles; ++r) terms[r].Set(rows[r]);
  TANDEM_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    const unsigned char* const piece = pieces + tile * Weight::kPieceBytes;
    const Words4 numbers = Weight::Numbers(piece, step);
    const auto scales = Weight::Scales(piece + Weight::kNumberBytes, step);
    PairScales<Weight::kHalves> minimums = {};
    if constexpr (Weight::kHasMinimums) {
      minimums = Weight::Scales(piece + Weight::kMinimumsAt, step);
    }
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TANDEM_UNROLL
      for (int half = 0; half < Weight::kHalves; ++half) {
        MultiplyHalf<Weight>(numbers, rows[r], terms[r], half, scales, minimums, sums[tile][r]);
      }
    }
  }
}

// Starts to copy kBytes, a multiple of 16. `to` and `from` are the addresses of the lane's 16 bytes
// in the first 512.
template <int kBytes>
TANDEM_DEVICE void CopyBytes(unsigned char* to, const unsigned char* from) {
  TANDEM_UNROLL
  for (int at = 0; at < kBytes; at += kWarpSize * 16) {
    if (at + kWarpSize * 16 <= kBytes || Lane() * 16 < kBytes - at) CopyAsync16(to + at, from + at);
  }
}

// Returns the first piece of a weight's tile, clamped to the last tile (WeightTile).
template <typename Weight>
TANDEM_DEVICE const unsigned char* PiecesOf(const TileProductTask& task, int tile) {
  const int num_pieces = CeilDiv(NumSteps(task.x.cols), Weight::kPieceSteps);
  return static_cast<const unsigned char*>(task.weight) +
         int64_t{WeightTile(task, tile)} * num_pieces * Weight::kPieceBytes;
}
// Returns the first step of tile `tile` of rows.
TANDEM_DEVICE const unsigned char* StepsOfRows(const TileProductTask& task, int tile) {
  return static_cast<const unsigned char*>(task.rows) +
         int64_t{RowTile(task, tile)} * NumWholeRowsSteps(task.x.cols) * kWholeRowsStepBytes;
}

// Few rows: each warp has one chain. Its lanes copy the chain's pieces for each other.
template <typename Weight, int kRowTiles>
struct BlockProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kChains * kWarpSize;
  static constexpr int kOutputTiles = kBlockOutputTiles;
  static constexpr int kPieceSteps = Weight::kPieceSteps;
  static constexpr int kStageBytes = kOutputTiles * Weight::kPieceBytes;
  static_assert(kBlockChainSteps % kPieceSteps == 0);

  // Starts to copy weights while the kernels before this one still run.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    Sums sums = {};
    MultiplyChain(task, shared + WarpIndex() * (kBlockStages * kStageBytes), sums);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    End::StoreSums(sums, chain_sums + WarpIndex() * (End::kRows * End::kOutputs));
    Barrier();
    End::AddChains(task, chain_sums,
                   [&](int row) { return FactorOf(task, int64_t{BlockX()} * End::kRows + row); });
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
    for (int stage = 0; stage < kBlockStages - 1; ++stage) copies.Next(ring + stage * kStageBytes);
    WaitForKernelsBefore();
    Rows rows;
    rows.Begin(task, begin);
    WholeRow next[kRowTiles];
    if (num_pieces > 0) rows.Read(0, next);
    int slot = 0;
    for (int piece = 0; piece < num_pieces; ++piece) {
      CopyWait<kBlockStages - 2>();
      SyncWarp();  // all lanes have the stage, and none reads the previous one
      const int free_slot = slot == 0 ? kBlockStages - 1 : slot - 1;
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
      slot = slot == kBlockStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
  }
};

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
    for (int stage = 0; stage < kBlockStages - 1; ++stage) {
      copies.Next(shared + stage * kStageBytes);
    }
    int chain_end = chain_pieces;
    Sums chain = {};
    Sums totals = {};
    int slot = 0;
    for (int piece = 0; piece < num_pieces; ++piece) {
      CopyWait<kBlockStages - 2>();
      Barrier();  // all threads have the stage, and none reads the previous one
      const int free_slot = slot == 0 ? kBlockStages - 1 : slot - 1;
      copies.Next(shared + free_slot * kStageBytes);
      MultiplyStage(shared + slot * kStageBytes, chain);
      if (piece + 1 == chain_end || piece + 1 == num_pieces) {
        EndChain<kOutputTiles, kRowTiles>(chain, totals);
        chain_end += chain_pieces;
      }
      slot = slot == kBlockStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      int64_t{BlockX()} * kBlockManyRowTiles + FirstRowTile(),
                                      totals, [&](int64_t row) { return FactorOf(task, row); });
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

namespace {

template <DType kDType, int kRowTiles>
Error EnqueueFewRows(const TileProductTask& task, Stream stream) {
  constexpr ProductTiles kTiles = {kRowTiles, kBlockOutputTiles};
  return Enqueue<BlockProductKernel<BlockWeight<kDType>, kRowTiles>>(
      task, TileProductShape(kDType, kTiles, task.out.rows, task.num_tiles), stream);
}

template <DType kDType>
Error EnqueueBlocks(const TileProductTask& task, Stream stream) {
  if (HasManyRows(kDType, task.out.rows, task.num_tiles, task.num_sms)) {
    return Enqueue<ManyRowsBlockProductKernel<BlockWeight<kDType>>>(
        task, ManyRowsShape(kDType, task.out.rows, task.num_tiles), stream);
  }
  switch (FewRowsTiles(kDType, RowTilesFor(task.out.rows)).rows) {
    case 1:
      return EnqueueFewRows<kDType, 1>(task, stream);
    case 2:
      return EnqueueFewRows<kDType, 2>(task, stream);
    default:
      return EnqueueFewRows<kDType, 4>(task, stream);
  }
}

}  // namespace

Error LaunchBlocks(const TileProductTask& task, Stream stream) {
  switch (task.dtype) {
    case DType::kQ8_0:
      return EnqueueBlocks<DType::kQ8_0>(task, stream);
    case DType::kQ4_0:
      return EnqueueBlocks<DType::kQ4_0>(task, stream);
    case DType::kQ4_1:
      return EnqueueBlocks<DType::kQ4_1>(task, stream);
    case DType::kQ5_0:
      return EnqueueBlocks<DType::kQ5_0>(task, stream);
    case DType::kQ5_1:
      return EnqueueBlocks<DType::kQ5_1>(task, stream);
    case DType::kQ2K:
      return EnqueueBlocks<DType::kQ2K>(task, stream);
    case DType::kQ3K:
      return EnqueueBlocks<DType::kQ3K>(task, stream);
    case DType::kQ4K:
      return EnqueueBlocks<DType::kQ4K>(task, stream);
    case DType::kQ5K:
      return EnqueueBlocks<DType::kQ5K>(task, stream);
    case DType::kQ6K:
      return EnqueueBlocks<DType::kQ6K>(task, stream);
    case DType::kIq4Nl:
      return EnqueueBlocks<DType::kIq4Nl>(task, stream);
    default:
      return EnqueueBlocks<DType::kIq4Xs>(task, stream);
  }
}

}  // namespace tandem::cuda
