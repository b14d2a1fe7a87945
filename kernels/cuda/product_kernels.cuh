// Products of few rows with packed weights of bf16, int8 and int4, and plain ones of any number of
// rows with f32 and f16.
//
// The inputs of an output are summed in kChains chains, each by one warp in increasing steps, which
// are then added in order: neither rows nor blocks have a say in it. A warp's own copies feed it,
// each lane reading what it copied itself, so that only the last sum needs a barrier.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_

#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// A lane's part of a step of a tile of rows.
TANDEM_DEVICE Words4 RoundRows(const ConstMatrixView& x, int tile, int step) {
  const int row = tile * kTileRows + Lane() / 4;
  Words4 packed = {};
  if (row >= x.rows) return packed;
  const float* const numbers = RowOf(x, row);
  TANDEM_UNROLL
  for (int word = 0; word < 4; ++word) {
    const int input = step * kStepInputs + RowsInput(Lane(), word);
    const float low = input < x.cols ? Load(numbers + input) : 0.0f;
    const float high = input + 1 < x.cols ? Load(numbers + input + 1) : 0.0f;
    packed.words[word] = PackBf16(low, high);
  }
  return packed;
}

struct PackRowsKernel {
  using Task = PackRowsTask;
  static constexpr int kThreads = kPackWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int num_steps = NumSteps(task.x.cols);
    const int step = BlockX() * kPackWarps + WarpIndex();
    if (step >= num_steps) return;
    const Words4 packed = RoundRows(task.x, BlockY(), step);
    const int64_t at = (int64_t{BlockY()} * num_steps + step) * kWarpSize + Lane();
    Store(static_cast<Words4*>(task.out) + at, packed);
  }
};

template <typename Weight, int kRowTiles, int kOutputTiles>
struct TileProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kChains * kWarpSize;
  static constexpr int kOutputs = kOutputTiles * kTileOutputs;
  static constexpr int kRows = kRowTiles * kTileRows;
  // Of kPieceSteps steps of a tile.
  static constexpr int kPiecesWords4 = Weight::kPieces * kWarpSize;
  static constexpr int kStageWords4 = kStageBytes / 16;
  static constexpr int kStagePieces = kStageWords4 / kPiecesWords4 / kOutputTiles;
  static constexpr int kStageSteps = kStagePieces * Weight::kPieceSteps;
  static_assert(kStagePieces >= 1 &&
                (Weight::kChainUnit % kStageSteps == 0 || kStageSteps % Weight::kChainUnit == 0));

  // Weights are on their way before the kernels before have ended.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    const int num_steps = NumSteps(task.x.cols);
    const int begin = ChainBegin(WarpIndex(), num_steps, Weight::kChainUnit);
    const int end = ChainBegin(WarpIndex() + 1, num_steps, Weight::kChainUnit);
    Chain chain(task, BlockX() * kOutputTiles, begin, end);
    MultiplyChain(task, begin, end, reinterpret_cast<Words4*>(shared), chain);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    StoreSums(chain.sums(), chain_sums + WarpIndex() * (kRows * kOutputs));
    Barrier();
    AddChains(task, chain_sums);
  }

 private:
  using Chain = ChainSums<Weight, kOutputTiles, kRowTiles>;

  TANDEM_DEVICE static void MultiplyChain(const Task& task, int begin, int end, Words4* shared,
                                          Chain& chain) {
    Words4* const ring = shared + WarpIndex() * (kCopyStages * kStageWords4) + Lane();
    TANDEM_UNROLL
    for (int stage = 0; stage < kCopyStages - 1; ++stage) {
      CopyStage(task, begin + stage * kStageSteps, end, ring + stage * kStageWords4);
    }
    WaitForKernelsBefore();
    int slot = 0;
    for (int step = begin; step < end; step += kStageSteps) {
      CopyWait<kCopyStages - 2>();
      const int free_slot = slot == 0 ? kCopyStages - 1 : slot - 1;
      CopyStage(task, step + (kCopyStages - 1) * kStageSteps, end, ring + free_slot * kStageWords4);
      MultiplyStage(task, step, end, ring + slot * kStageWords4, chain);
      slot = slot == kCopyStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
  }

  // One group of copies, which may be empty. A lane's part of a stage is
  // [kStagePieces][tiles][pieces].
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, int end, Words4* to) {
    const int per_tile = CeilDiv(NumSteps(task.x.cols), Weight::kPieceSteps);
    TANDEM_UNROLL
    for (int p = 0; p < kStagePieces; ++p) {
      TANDEM_UNROLL
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        if (step + p * Weight::kPieceSteps >= end) continue;
        const int64_t at = int64_t{WeightTile(task, BlockX() * kOutputTiles + tile)} * per_tile +
                           step / Weight::kPieceSteps + p;
        const Words4* const from =
            static_cast<const Words4*>(task.weight) + at * kPiecesWords4 + Lane();
        Words4* const part = to + (p * kOutputTiles + tile) * kPiecesWords4;
        TANDEM_UNROLL
        for (int i = 0; i < Weight::kPieces; ++i) {
          CopyAsync16(part + i * kWarpSize, from + i * kWarpSize);
        }
      }
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(const Task& task, int first_step, int end,
                                          const Words4* weights, Chain& chain) {
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      const int step = first_step + s;
      if (step >= end) return;
      Words4 rows[kRowTiles];
      LoadRows(task, step, rows);
      chain.Add(step, weights + s / Weight::kPieceSteps * (kOutputTiles * kPiecesWords4),
                kPiecesWords4, s % Weight::kPieceSteps, rows);
    }
  }

  // Tiles behind the last row are zeros.
  TANDEM_DEVICE static void LoadRows(const Task& task, int step, Words4 (&rows)[kRowTiles]) {
    if constexpr (kRows <= kRowsRoundedOnTheWay) {
      rows[0] = RoundRows(task.x, 0, step);
    } else {
      const int num_steps = NumSteps(task.x.cols);
      const int num_row_tiles = CeilDiv(task.out.rows, kTileRows);
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const int tile = BlockY() * kRowTiles + r;
        rows[r] = Words4{};
        if (tile >= num_row_tiles) continue;
        rows[r] = Load(static_cast<const Words4*>(task.rows) +
                       (int64_t{tile} * num_steps + step) * kWarpSize + Lane());
      }
    }
  }

  // out: [rows][outputs]
  TANDEM_DEVICE static void StoreSums(const typename Chain::Sums& sums, float* out) {
    Chain::ForEach([&](int tile, int r, int i) {
      const int output = tile * kTileOutputs + Lane() / 4 + i / 2 * 8;
      const int row = r * kTileRows + Lane() % 4 * 2 + i % 2;
      Store(out + row * kOutputs + output, sums[tile][r][i]);
    });
  }

  TANDEM_DEVICE static float ChainsSum(const float* chain_sums, int row, int output) {
    float sum = 0.0f;
    TANDEM_UNROLL
    for (int chain = 0; chain < kChains; ++chain) {
      sum = sum + Load(chain_sums + (chain * kRows + row) * kOutputs + output);
    }
    return sum;
  }

  TANDEM_DEVICE static void AddChains(const Task& task, const float* chain_sums) {
    const bool is_pair = task.end == ProductEnd::kSwiGlu;
    const int tile_outputs = is_pair ? kTileOutputs / 2 : kTileOutputs;
    const int outputs = kOutputTiles * tile_outputs;
    for (int i = ThreadIndex(); i < kRows * outputs; i += kThreads) {
      const int row = i / outputs;
      const int tile = i % outputs / tile_outputs;
      const int output = i % tile_outputs;
      const int in_block = tile * kTileOutputs + output;
      const float up = is_pair ? ChainsSum(chain_sums, row, in_block + tile_outputs) : 0.0f;
      EndOutput(task, int64_t{BlockY()} * kRows + row, BlockX() * kOutputTiles + tile, output,
                ChainsSum(chain_sums, row, in_block), up);
    }
  }
};

// A row and output have 32 chains, by input modulo 32, added by a tree.
struct FloatProductKernel {
  using Task = FloatProductTask;
  static constexpr int kThreads = kFloatWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int output = BlockX() * kFloatWarps + WarpIndex();
    if (output >= task.out.cols) return;
    const int first_row = BlockY() * kFloatRows;
    float value = Dot(task, first_row, output);
    if (task.end == ProductEnd::kSwiGlu) {
      value = SwiGlu(value, Dot(task, first_row, output + task.out.cols));
    }
    if (Lane() >= kFloatRows || first_row + Lane() >= task.out.rows) return;
    EndProduct(task.end, value, RowOf(task.out, first_row + Lane()) + output);
  }

 private:
  // Of row first_row + lane, in the first lanes.
  TANDEM_DEVICE static float Dot(const Task& task, int first_row, int output) {
    float values[kFloatRows] = {};
    const int64_t weight_row = output * task.weight.stride;
    TANDEM_UNROLL_BY(2)
    for (int k = Lane(); k < task.weight.cols; k += kWarpSize) {
      const float weight = LoadAsFloat(task.weight.data, task.weight.dtype, weight_row + k);
      TANDEM_UNROLL
      for (int r = 0; r < kFloatRows; ++r) {
        if (first_row + r >= task.x.rows) continue;
        values[r] = MulAdd(Load(RowOf(task.x, first_row + r) + k), weight, values[r]);
      }
    }
    TANDEM_UNROLL
    for (int r = 0; r < kFloatRows; ++r) {
      const float sum = WarpSum(values[r]);
      if (Lane() == r) values[0] = sum;
    }
    return task.bias == nullptr ? values[0] : values[0] + Load(task.bias + output);
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
