// Products of few rows with packed weights of bf16, int8 and int4, and plain ones of any number of
// rows with f32 and f16.
//
// The inputs of an output are summed in kChains chains, each by one warp in increasing steps, which
// are then added in order: neither rows nor blocks have a say in it. A warp's own copies feed it,
// each lane reading what it copied itself, so that only the last sum needs a barrier.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_

#include <type_traits>

#include "kernels/cuda/product_math.cuh"

namespace tandem::cuda {

// A lane's part of a step of a tile of rows: as it is, with a norm's weights, and rounded to bf16.
struct RowNumbers {
  float numbers[8];
  float weights[8];

  TANDEM_DEVICE void Load(const ConstMatrixView& x, const NormTask& norm, int tile, int step) {
    const int row = tile * kTileRows + Lane() / 4;
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int input = step * kStepInputs + RowsInput(Lane(), i / 2) + i % 2;
      const bool is_in = row < x.rows && input < x.cols;
      numbers[i] = is_in ? cuda::Load(RowOf(x, row) + input) : 0.0f;
      weights[i] = is_in && norm.weight != nullptr ? cuda::Load(norm.weight + input) : 1.0f;
    }
  }
  TANDEM_DEVICE Words4 Rounded() const {
    Words4 packed;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      packed.words[i] =
          PackBf16(numbers[2 * i] * weights[2 * i], numbers[2 * i + 1] * weights[2 * i + 1]);
    }
    return packed;
  }
  TANDEM_DEVICE void AddSquares(float* squares) const {
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) *squares = MulAdd(numbers[i], numbers[i], *squares);
  }
};

// The squares of rows have the chains of sums: each lane adds its own, then the four that share a
// row are added, then the chains in order.
TANDEM_DEVICE void StoreSquares(float squares, float* of_chains) {  // [chains][tile's rows]
  squares = squares + ShuffleXor(squares, 1);
  squares = squares + ShuffleXor(squares, 2);
  if (Lane() % 4 == 0) Store(of_chains + WarpIndex() * kTileRows + Lane() / 4, squares);
}
// What sums of row `row` of the tile are multiplied with.
TANDEM_DEVICE float NormFactor(const NormTask& norm, const float* of_chains, int row, int inputs) {
  float squares = 0.0f;
  TANDEM_UNROLL
  for (int chain = 0; chain < kChains; ++chain) {
    squares = squares + Load(of_chains + chain * kTileRows + row);
  }
  return InverseRoot(squares, inputs, norm.epsilon);
}

// The same of rows that were rounded before.
struct PackedRow {
  Words4 packed;

  TANDEM_DEVICE void Load(const TileProductTask& task, int tile, int step) {
    const int64_t at = (int64_t{tile} * NumSteps(task.x.cols) + step) * kWarpSize + Lane();
    packed = tile < CeilDiv(task.out.rows, kTileRows)
                 ? cuda::Load(static_cast<const Words4*>(task.rows) + at)
                 : Words4{};
  }
  TANDEM_DEVICE Words4 Rounded() const { return packed; }
};

TANDEM_DEVICE Words4* PlaceOfRows(const PackRowsTask& task, int tile, int step) {
  return static_cast<Words4*>(task.out) +
         (int64_t{tile} * NumSteps(task.x.cols) + step) * kWarpSize + Lane();
}

// A warp packs a step of a tile of rows.
struct PackRowsKernel {
  using Task = PackRowsTask;
  static constexpr int kThreads = kPackWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int step = BlockX() * kPackWarps + WarpIndex();
    if (step >= NumSteps(task.x.cols)) return;
    RowNumbers row;
    row.Load(task.x, {}, BlockY(), step);
    Store(PlaceOfRows(task, BlockY(), step), row.Rounded());
  }
};

// With a norm a block has a tile of rows, and each warp a chain, as its squares have.
struct PackNormedRowsKernel {
  using Task = PackRowsTask;
  static constexpr int kThreads = kChains * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    const int num_steps = NumSteps(task.x.cols);
    const int begin = ChainBegin(WarpIndex(), num_steps, task.chain_unit);
    const int end = ChainBegin(WarpIndex() + 1, num_steps, task.chain_unit);
    float squares = 0.0f;
    const auto load = [&](int step) {
      RowNumbers row;
      row.Load(task.x, task.norm, BlockX(), step);
      return row;
    };
    ForEach<4>(begin, end, 1, load, [&](int step, const RowNumbers& row) {
      row.AddSquares(&squares);
      Store(PlaceOfRows(task, BlockX(), step), row.Rounded());
    });
    auto* const of_chains = reinterpret_cast<float*>(shared);
    StoreSquares(squares, of_chains);
    Barrier();
    const int row = BlockX() * kTileRows + ThreadIndex();
    if (ThreadIndex() >= kTileRows || row >= task.x.rows) return;
    Store(task.factors + row, NormFactor(task.norm, of_chains, ThreadIndex(), task.x.cols));
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
    Chain chain(task, BlockY() * kOutputTiles, begin, end);
    float squares = 0.0f;
    MultiplyChain(task, begin, end, reinterpret_cast<Words4*>(shared), chain, &squares);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    float* const chain_squares = chain_sums + kChains * kRows * kOutputs;
    StoreSums(chain.sums(), chain_sums + WarpIndex() * (kRows * kOutputs));
    if (kRoundsOnTheWay) StoreSquares(squares, chain_squares);
    Barrier();
    AddChains(task, chain_sums, chain_squares);
  }

 private:
  using Chain = ChainSums<Weight, kOutputTiles, kRowTiles>;
  static constexpr bool kRoundsOnTheWay = kRows <= kRowsRoundedOnTheWay;
  struct StageRows {
    std::conditional_t<kRoundsOnTheWay, RowNumbers, PackedRow> parts[kStageSteps][kRowTiles];
  };

  TANDEM_DEVICE static void MultiplyChain(const Task& task, int begin, int end, Words4* shared,
                                          Chain& chain, float* squares) {
    Words4* const ring = shared + WarpIndex() * (kCopyStages * kStageWords4) + Lane();
    TANDEM_UNROLL
    for (int stage = 0; stage < kCopyStages - 1; ++stage) {
      CopyStage(task, begin + stage * kStageSteps, end, ring + stage * kStageWords4);
    }
    WaitForKernelsBefore();
    StageRows next;
    LoadRows(task, begin, end, next);
    int slot = 0;
    for (int step = begin; step < end; step += kStageSteps) {
      CopyWait<kCopyStages - 2>();
      const int free_slot = slot == 0 ? kCopyStages - 1 : slot - 1;
      CopyStage(task, step + (kCopyStages - 1) * kStageSteps, end, ring + free_slot * kStageWords4);
      const StageRows rows = next;
      LoadRows(task, step + kStageSteps, end, next);
      MultiplyStage(step, end, ring + slot * kStageWords4, rows, chain, squares);
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
        const int64_t at = int64_t{WeightTile(task, BlockY() * kOutputTiles + tile)} * per_tile +
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

  TANDEM_DEVICE static void MultiplyStage(int first_step, int end, const Words4* weights,
                                          const StageRows& rows, Chain& chain, float* squares) {
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      const int step = first_step + s;
      if (step >= end) return;
      Words4 tiles[kRowTiles];
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) tiles[r] = rows.parts[s][r].Rounded();
      if constexpr (kRoundsOnTheWay) rows.parts[s][0].AddSquares(squares);
      chain.Add(step, weights + s / Weight::kPieceSteps * (kOutputTiles * kPiecesWords4),
                kPiecesWords4, s % Weight::kPieceSteps, tiles);
    }
  }

  // A stage before they are needed. Tiles behind the last row are zeros.
  TANDEM_DEVICE static void LoadRows(const Task& task, int first_step, int end, StageRows& rows) {
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        if (first_step + s >= end) continue;
        if constexpr (kRoundsOnTheWay) {
          rows.parts[s][r].Load(task.x, task.norm, 0, first_step + s);
        } else {
          rows.parts[s][r].Load(task, BlockX() * kRowTiles + r, first_step + s);
        }
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

  TANDEM_DEVICE static void AddChains(const Task& task, const float* chain_sums,
                                      const float* chain_squares) {
    const bool is_pair = task.end == ProductEnd::kSwiGlu;
    const int tile_outputs = is_pair ? kTileOutputs / 2 : kTileOutputs;
    const int outputs = kOutputTiles * tile_outputs;
    for (int i = ThreadIndex(); i < kRows * outputs; i += kThreads) {
      const int row = i / outputs;
      const int tile = i % outputs / tile_outputs;
      const int output = i % tile_outputs;
      const int in_block = tile * kTileOutputs + output;
      const float up = is_pair ? ChainsSum(chain_sums, row, in_block + tile_outputs) : 0.0f;
      const int64_t out_row = int64_t{BlockX()} * kRows + row;
      float factor = FactorOf(task, out_row);
      if (kRoundsOnTheWay && task.norm.weight != nullptr) {
        factor = NormFactor(task.norm, chain_squares, row, task.x.cols);
      }
      EndOutput(task, out_row, BlockY() * kOutputTiles + tile, output, factor,
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
