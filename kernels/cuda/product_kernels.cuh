// Products of few rows with packed weights of bf16, and plain ones of any number of rows with f32
// and f16.
//
// The inputs of an output are summed in kChains chains, each by one warp in increasing steps, which
// are then added in order: neither rows nor blocks have a say in it. A warp's own copies feed it,
// each lane reading what it copied itself, so that only the last sum needs a barrier.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_

#include <type_traits>

#include "kernels/cuda/product_math.cuh"
#include "kernels/cuda/product_rows.cuh"

namespace tandem::cuda {

// A lane's part of a step of a tile of rows: to be rounded, and rounded before.
struct RowToRound : RowNumbers<Bf16Rows> {
  TANDEM_DEVICE Words4 Rounded() const {
    return Weighted([](const float(&numbers)[8]) { return Bf16Rows::Rounded(numbers); });
  }
};
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

template <int kRowTiles, int kOutputTiles>
struct TileProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = kChains * kWarpSize;
  static constexpr int kStageWords4 = kStageBytes / 16;
  static constexpr int kStageSteps = kStageWords4 / kBf16StepWords4 / kOutputTiles;
  static_assert(kStageSteps >= 1);

  // Weights are on their way before the kernels before have ended.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    const int num_steps = NumSteps(task.x.cols);
    const int begin = ChainBegin(WarpIndex(), num_steps, 1);
    const int end = ChainBegin(WarpIndex() + 1, num_steps, 1);
    Sums sums = {};
    float squares = 0.0f;
    MultiplyChain(task, begin, end, reinterpret_cast<Words4*>(shared), sums, &squares);
    Barrier();
    auto* const chain_sums = reinterpret_cast<float*>(shared);  // [chains][rows][outputs]
    float* const chain_squares = chain_sums + kChains * End::kRows * End::kOutputs;
    End::StoreSums(sums, chain_sums + WarpIndex() * (End::kRows * End::kOutputs));
    if (kRoundsOnTheWay) StoreSquares(squares, chain_squares);
    Barrier();
    End::AddChains(task, chain_sums, [&](int row) {
      return kRoundsOnTheWay && task.norm.weight != nullptr
                 ? NormFactor(task.norm, chain_squares, row, task.x.cols)
                 : FactorOf(task, int64_t{BlockX()} * End::kRows + row);
    });
  }

 private:
  using Sums = TileSums<kOutputTiles, kRowTiles>;
  using End = ChainEnd<kOutputTiles, kRowTiles>;
  static constexpr bool kRoundsOnTheWay = End::kRows <= kRowsRoundedOnTheWay;
  struct StageRows {
    std::conditional_t<kRoundsOnTheWay, RowToRound, PackedRow> parts[kStageSteps][kRowTiles];
  };

  TANDEM_DEVICE static void MultiplyChain(const Task& task, int begin, int end, Words4* shared,
                                          Sums& sums, float* squares) {
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
      MultiplyStage(step, end, ring + slot * kStageWords4, rows, sums, squares);
      slot = slot == kCopyStages - 1 ? 0 : slot + 1;
    }
    CopyWait<0>();
  }

  // One group of copies, which may be empty. A lane's part of a stage is [steps][tiles][halves].
  TANDEM_DEVICE static void CopyStage(const Task& task, int step, int end, Words4* to) {
    const int num_steps = NumSteps(task.x.cols);
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      TANDEM_UNROLL
      for (int tile = 0; tile < kOutputTiles; ++tile) {
        if (step + s >= end) continue;
        const int64_t at =
            int64_t{WeightTile(task, BlockY() * kOutputTiles + tile)} * num_steps + step + s;
        const Words4* const from =
            static_cast<const Words4*>(task.weight) + at * kBf16StepWords4 + Lane();
        Words4* const part = to + (s * kOutputTiles + tile) * kBf16StepWords4;
        TANDEM_UNROLL
        for (int i = 0; i < kBf16Pieces; ++i) {
          CopyAsync16(part + i * kWarpSize, from + i * kWarpSize);
        }
      }
    }
    CopyCommit();
  }

  TANDEM_DEVICE static void MultiplyStage(int first_step, int end, const Words4* weights,
                                          const StageRows& rows, Sums& sums, float* squares) {
    TANDEM_UNROLL
    for (int s = 0; s < kStageSteps; ++s) {
      if (first_step + s >= end) return;
      Words4 tiles[kRowTiles];
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) tiles[r] = rows.parts[s][r].Rounded();
      if constexpr (kRoundsOnTheWay) rows.parts[s][0].AddSquares(squares);
      MultiplyBf16<kOutputTiles, kRowTiles>(weights + s * (kOutputTiles * kBf16StepWords4), tiles,
                                            sums);
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
    if (IsGated(task.end)) {
      value = Gated(task.end, value, Dot(task, first_row, output + task.out.cols));
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
