#include "kernels/cuda/product_kernels.cuh"
#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// Products of many rows, as in prompts, with packed weights of bf16. A block computes many tiles of
// rows by many tiles of outputs, so that each tile is read once for many others; its warps share
// the tiles in shared memory. Each warp processes all inputs of its tiles, in the same order and
// with the same bits as product_kernels.cuh.
struct ManyRowsProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kManyRowsWarps * kWarpSize;
  static constexpr int kOutputTiles = kManyRowsOutputTiles / kWarpsAcross;
  static constexpr int kRowTiles = kManyRowsRowTiles / (kManyRowsWarps / kWarpsAcross);
  // A stage in shared memory is one step: [output tiles][halves], then [row tiles], of 512 bytes
  // each.
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
      Barrier();  // all threads have the stage, and none reads the previous one
      const int free_slot = slot == 0 ? kStages - 1 : slot - 1;
      CopyStage(task, step + kStages - 1, shared + free_slot * kStageWords4);
      MultiplyStage(shared + slot * kStageWords4, sums);
      slot = slot == kStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
    Barrier();  // none reads the last stages
    auto* const factors = reinterpret_cast<float*>(bytes);
    const int64_t first_row_tile = int64_t{BlockX()} * kManyRowsRowTiles;
    StoreFactors(task, first_row_tile * kTileRows, kManyRowsRowTiles * kTileRows, WarpIndex(),
                 kManyRowsWarps, factors);
    Barrier();
    EndTiles<kOutputTiles, kRowTiles>(task, BlockY() * kManyRowsOutputTiles + FirstOutputTile(),
                                      first_row_tile + FirstRowTile(), sums,
                                      factors + FirstRowTile() * kTileRows);
  }

 private:
  using Sums = TileSums<kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static int FirstOutputTile() { return WarpIndex() % kWarpsAcross * kOutputTiles; }
  TANDEM_DEVICE static int FirstRowTile() { return WarpIndex() / kWarpsAcross * kRowTiles; }

  // Issues one group of copies, which may be empty. Each warp copies every kManyRowsWarps-th part.
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, Words4* stage) {
    const int num_steps = NumSteps(task.x.cols);
    const auto* const weights = static_cast<const Words4*>(task.weight);
    TANDEM_UNROLL
    for (int i = 0; i < kStageParts / kManyRowsWarps; ++i) {
      const int part = i * kManyRowsWarps + WarpIndex();
      if (step >= num_steps) continue;
      Words4* const to = stage + part * kWarpSize;
      if (part < kWeightParts) {
        const int tile = WeightTile(task, BlockY() * kManyRowsOutputTiles + part / kBf16Pieces);
        const int64_t at = int64_t{tile} * num_steps + step;
        const Words4* const from = weights + (at * kBf16Pieces + part % kBf16Pieces) * kWarpSize;
        CopyAsync16(to + Lane(), from + Lane());
      } else {
        CopyRows(task, BlockX() * kManyRowsRowTiles + part - kWeightParts, step,
                 reinterpret_cast<uint32_t*>(to));
      }
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(const Words4* stage, Sums& sums) {
    Words4 rows[kRowTiles];
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      const Words4* const step = stage + (kWeightParts + FirstRowTile() + r) * kWarpSize;
      rows[r] = LoadRows(reinterpret_cast<const uint32_t*>(step));
    }
    MultiplyBf16<kOutputTiles, kRowTiles>(stage + FirstOutputTile() * kBf16StepWords4 + Lane(),
                                          rows, sums);
  }
};

// ---- Kernels before and after products by cuBLASLt (cublas_products.h) ----

// Each warp unpacks one step of a tile of a weight to plain rows.
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

// Each warp copies one step of a tile of rows.
struct PlainRowsKernel {
  using Task = PlainRowsTask;
  static constexpr int kThreads = kPackWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int step = BlockX() * kPackWarps + WarpIndex();
    if (step >= task.num_steps) return;
    const int row = BlockY() * kTileRows + Lane() / 4, part = Lane() % 4;
    Words4 numbers = {};
    if (row < task.num_rows) {
      const int64_t offset = RowsImageOffset(CeilDiv(task.image_rows, kTileRows),
                                             task.first_row + row, step * kStepInputs + part * 8);
      numbers = Load(
          reinterpret_cast<const Words4*>(static_cast<const unsigned char*>(task.image) + offset));
    }
    const int64_t at = (int64_t{row} * task.num_steps + step) * (kStepInputs / 8) + part;
    Store(static_cast<Words4*>(task.out) + at, numbers);
  }
};

// Each thread finishes one output of a row.
struct EndSumsKernel {
  using Task = EndSumsTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    constexpr int kHalf = kTileOutputs / 2;
    const int row = KeptInRegister(task.first_row + BlockX());
    const float factor = FactorOf(task.product, row);
    const int place = BlockY() * kThreads + ThreadIndex();
    const int tile = place / kTileOutputs, output = place % kTileOutputs;
    const bool is_pair = IsGated(task.product.end);
    const bool is_in = tile < task.product.num_tiles && (!is_pair || output < kHalf);
    float value = 0.0f;
    if (is_in) {
      const float* const sum = RowOf(task.sums, BlockX()) + place;
      value = EndOutput(task.product, row, tile, output, factor, Load(sum),
                        is_pair ? Load(sum + kHalf) : 0.0f);
    }
    const NextRows& next = task.product.next;
    if (next.image == nullptr) return;
    const int rows = task.product.out.rows, cols = task.product.out.cols;
    StoreColumns(next, rows, row, is_pair ? tile * kHalf + output : place, value, is_in);
    if (next.norm == nullptr) return;
    const float other = ShuffleXor(value, 8);
    float squares = output < 8 ? PairOfSquares(value, other) : PairOfSquares(other, value);
    TANDEM_UNROLL
    for (int mask = 1; mask <= 4; mask *= 2) squares = squares + ShuffleXor(squares, mask);
    if (is_in && output == 0) StoreSquares(next, cols, row, tile, squares);
  }
};

namespace {

int NumPackedSteps(const PackRowsTask& task) {
  return task.quantizes ? NumWholeRowsSteps(task.x.cols) : NumSteps(task.x.cols);
}

template <typename Format>
Error EnqueuePackRows(const PackRowsTask& task, Stream stream) {
  return Enqueue<PackRowsKernel<Format>>(task, PackRowsShape(task.x.rows, NumPackedSteps(task)),
                                         stream);
}

}  // namespace

Error Launch(const PackRowsTask& task, Stream stream) {
  return task.quantizes ? EnqueuePackRows<WholeRows>(task, stream)
                        : EnqueuePackRows<Bf16Rows>(task, stream);
}

Error Launch(const TileProductTask& task, Stream stream) {
  if (!IsBlocks(task.dtype) && task.out.rows > kMostFewRows) {
    bool has_warpgroups = false;
    const Error error = HasWarpgroupProducts(stream, &has_warpgroups);
    if (error != kNoError) return error;
    if (has_warpgroups) return LaunchWarpgroupProduct(task, stream);
  }
  const bool has_many = HasManyRows(task.dtype, task.out.rows, task.num_tiles, task.num_sms);
  if (IsBlocks(task.dtype)) {
    return has_many ? LaunchManyRowsBlocks(task, stream) : LaunchFewRowsBlocks(task, stream);
  }
  if (has_many) {
    return Enqueue<ManyRowsProductKernel>(
        task, ManyRowsShape(task.dtype, task.out.rows, task.num_tiles), stream);
  }
  return LaunchFewRowsBf16(task, stream);
}

Error Launch(const UnpackTilesTask& task, Stream stream) {
  return Enqueue<UnpackTilesKernel>(task, PackRowsShape(task.num_tiles * kTileRows, task.num_steps),
                                    stream);
}

Error Launch(const PlainRowsTask& task, Stream stream) {
  return Enqueue<PlainRowsKernel>(task, PackRowsShape(task.plain_rows, task.num_steps), stream);
}

Error Launch(const EndSumsTask& task, Stream stream) {
  return Enqueue<EndSumsKernel>(task, EndSumsShape(task.sums.rows, task.product.num_tiles), stream);
}

Error Launch(const FloatProductTask& task, Stream stream) {
  return Enqueue<FloatProductKernel>(task, FloatProductShape(task.out.rows, task.out.cols), stream);
}

}  // namespace tandem::cuda
