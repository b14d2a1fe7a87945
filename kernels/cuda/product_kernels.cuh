// Products of few rows with packed weights of bf16, and of any number of rows with plain weights of
// f32 and f16.
//
// An output is one chain of multiplications of 16 inputs, in increasing order of inputs, by one
// warp, whatever the numbers of rows and blocks. Each warp copies its own weights, and each lane
// reads what it copied itself. Other warps of the block copy the rows for all of these, a chunk of
// steps at a time (launch_shapes.h).
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_

#include "kernels/cuda/product_math.cuh"
#include "kernels/cuda/product_rows.cuh"

namespace tandem::cuda {

// A warp's share of preparing rows: it copies its parts of a chunk of steps, one chunk ahead.
template <int kRowTiles, int kChunkSteps>
class PackedRows {
 public:
  TANDEM_DEVICE PackedRows(const TileProductTask& task, int warp) : task_(task), warp_(warp) {}

  TANDEM_DEVICE void Begin(uint32_t* chunk) { Copy(0, chunk); }
  TANDEM_DEVICE void Prepare(int first_step, uint32_t* next_chunk) {
    Copy(first_step + kChunkSteps, next_chunk);
    CopyWait<1>();
  }
  TANDEM_DEVICE void End(float* factors) const {
    CopyWait<0>();
    StoreFactors(task_, int64_t{BlockX()} * kRowTiles * kTileRows, kRowTiles * kTileRows, warp_,
                 kRowWarps, factors);
  }

 private:
  static constexpr int kParts = kChunkSteps * kRowTiles;
  static_assert(kParts % kRowWarps == 0);

  // Issues one group of copies, which may be empty.
  TANDEM_DEVICE void Copy(int first_step, uint32_t* chunk) const {
    const int num_steps = NumSteps(task_.x.cols);
    TANDEM_UNROLL
    for (int i = 0; i < kParts / kRowWarps; ++i) {
      const int part = i * kRowWarps + warp_;
      const int step = first_step + part / kRowTiles;
      if (step >= num_steps) continue;
      CopyRows(task_, BlockX() * kRowTiles + part % kRowTiles, step, chunk + part * kRowsStepWords);
    }
    CopyCommit();
  }

  const TileProductTask& task_;
  const int warp_;
};

template <int kRowTiles, int kOutputTiles, int kCopyStages, int kStageSteps>
struct TileProductKernel {
  using Task = TileProductTask;
  static constexpr int kThreads = (kOutputTiles + kRowWarps) * kWarpSize;
  static constexpr FewRowsShared kAt =
      FewRowsSharedOf(kRowTiles, {kOutputTiles, kCopyStages, kStageSteps});
  static constexpr int kChunkSteps = kAt.chunk_steps;
  static constexpr int kChunkWords = kChunkSteps * kRowTiles * kRowsStepWords;
  static_assert(kChunkSteps % kStageSteps == 0 && kCopyStages >= 3);

  // Starts to copy weights while the kernels before this one still run.
  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    const bool multiplies = WarpIndex() < kOutputTiles;
    const auto chunk_at = [&](int chunk) {
      return reinterpret_cast<uint32_t*>(shared + kAt.rows) + chunk % kRowStages * kChunkWords;
    };
    auto* const factors = reinterpret_cast<float*>(shared + kAt.factors);
    Weights weights(task, reinterpret_cast<Words4*>(shared));
    PackedRows<kRowTiles, kChunkSteps> rows(task, WarpIndex() - kOutputTiles);
    if (multiplies) weights.Begin();
    WaitForKernelsBefore();
    if (!multiplies) rows.Begin(chunk_at(0));
    Sums sums = {};
    const int num_chunks = CeilDiv(NumSteps(task.x.cols), kChunkSteps);
    for (int chunk = 0; chunk <= num_chunks; ++chunk) {
      if (multiplies && chunk > 0) {
        weights.Multiply((chunk - 1) * kChunkSteps, chunk_at(chunk - 1), sums);
      } else if (!multiplies && chunk < num_chunks) {
        rows.Prepare(chunk * kChunkSteps, chunk_at(chunk + 1));
      } else if (!multiplies) {
        rows.End(factors);
      }
      Barrier();
    }
    if (!multiplies) return;
    CopyWait<0>();
    EndTiles<1, kRowTiles>(task, BlockY() * kOutputTiles + WarpIndex(),
                           int64_t{BlockX()} * kRowTiles, sums, factors);
  }

 private:
  using Sums = TileSums<1, kRowTiles>;

  // A lane's part of the weights for a warp's tile of outputs. Steps are consecutive.
  class Weights {
   public:
    TANDEM_DEVICE Weights(const Task& task, Words4* shared)
        : num_steps_(NumSteps(task.x.cols)),
          left_(num_steps_),
          from_(static_cast<const Words4*>(task.weight) +
                int64_t{WeightTile(task, BlockY() * kOutputTiles + WarpIndex())} * num_steps_ *
                    kBf16StepWords4 +
                Lane()),
          ring_(shared + WarpIndex() * (kCopyStages * kStageWords4) + Lane()) {}

    TANDEM_DEVICE void Begin() {
      TANDEM_UNROLL
      for (int stage = 0; stage < kCopyStages - 1; ++stage) {
        CopyStage(ring_ + stage * kStageWords4);
      }
    }
    // Adds a chunk of steps.   rows: [chunk steps][row tiles]
    TANDEM_DEVICE void Multiply(int first_step, const uint32_t* rows, Sums& sums) {
      for (int s = 0; s < kChunkSteps && first_step + s < num_steps_; s += kStageSteps) {
        CopyWait<kCopyStages - 2>();
        const int free_slot = slot_ == 0 ? kCopyStages - 1 : slot_ - 1;
        CopyStage(ring_ + free_slot * kStageWords4);
        const uint32_t* const part = rows + s * kRowTiles * kRowsStepWords;
        const int steps_left = num_steps_ - first_step - s;
        if (steps_left >= kStageSteps) {
          MultiplyStage<true>(kStageSteps, ring_ + slot_ * kStageWords4, part, sums);
        } else {
          MultiplyStage<false>(steps_left, ring_ + slot_ * kStageWords4, part, sums);
        }
        slot_ = slot_ == kCopyStages - 1 ? 0 : slot_ + 1;
      }
    }

   private:
    static constexpr int kStageWords4 = kStageSteps * kBf16StepWords4;

    // Issues one group of copies, which may be empty.
    TANDEM_DEVICE void CopyStage(Words4* to) {
      TANDEM_UNROLL
      for (int i = 0; i < kStageSteps * kBf16Pieces; ++i) {
        if (i / kBf16Pieces < left_) CopyAsync16(to + i * kWarpSize, from_ + i * kWarpSize);
      }
      left_ -= kStageSteps;
      from_ += kStageWords4;
      CopyCommit();
    }
    // A whole stage has no branches, so that all of it is loaded before it is needed.
    template <bool kIsWhole>
    TANDEM_DEVICE static void MultiplyStage(int num_steps, const Words4* weights,
                                            const uint32_t* rows, Sums& sums) {
      TANDEM_UNROLL
      for (int s = 0; s < kStageSteps; ++s) {
        if (!kIsWhole && s >= num_steps) return;
        Words4 tiles[kRowTiles];
        TANDEM_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          tiles[r] = LoadRows(rows + (s * kRowTiles + r) * kRowsStepWords);
        }
        MultiplyBf16<1, kRowTiles>(weights + s * kBf16StepWords4, tiles, sums);
      }
    }

    const int num_steps_;
    int left_;  // steps to copy
    const Words4* from_;
    Words4* const ring_;
    int slot_ = 0;
  };
};

// Each row and output has 32 chains, by input modulo 32, which are added by a tree.
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
  // Returns the dot product of row first_row + lane, in the first kFloatRows lanes.
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
