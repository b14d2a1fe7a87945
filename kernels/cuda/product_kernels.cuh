// Products of few rows with packed weights of bf16, and of any number of rows with plain weights of
// f32 and f16.
//
// An output is one chain of multiplications of 16 inputs, in increasing order of inputs, by one
// warp, whatever the numbers of rows and blocks. Each warp copies its own weights. One warp of the
// block copies the rows for all of them (launch_shapes.h).
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_KERNELS_CUH_

#include "kernels/cuda/product_math.cuh"
#include "kernels/cuda/product_rows.cuh"

namespace tandem::cuda {

struct FewRowsTask {
  TileProductTask product;
  FewRowsPlan plan;
};

template <int kRowTiles, int kStageSteps>
struct FewRowsKernel {
  using Task = FewRowsTask;
  static constexpr int kThreads = (kMostTileWarps + 1) * kWarpSize;
  // Two blocks fit into the registers of a multiprocessor: 64 a thread.
  static constexpr int kBlocks = kRowTiles == 1 && kStageSteps == 2 ? 2 : 1;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    const FewRowsPlan& plan = task.plan;
    auto* const stage_barriers = reinterpret_cast<PhaseBarrier*>(shared + plan.barriers);
    const Chunks chunks(shared + plan.rows, stage_barriers + plan.warps * plan.stages);
    if (ThreadIndex() == 0) {
      for (int i = 0; i < plan.warps * plan.stages; ++i) {
        InitPhases(stage_barriers + i, CopyArrivals());
      }
      chunks.Init(plan.warps);
      FencePhases();
    }
    Barrier();
    auto* const factors = reinterpret_cast<float*>(shared + plan.factors);
    const int warp = WarpIndex();
    if (warp == plan.warps) return CopyRows(task, chunks, factors);
    Weights weights(task, warp, shared, stage_barriers);
    weights.Begin();
    WaitForKernelsBefore();
    Multiply(task, warp, weights, chunks, factors);
  }

 private:
  static constexpr int kRows = kRowTiles * kTileRows;
  // Only the last class has several groups of rows.
  static constexpr bool kHasGroups = kRowTiles == kRowTileChoices[kNumRowTileChoices - 1];
  static constexpr int kFactorsAtOnce = 4;
  static constexpr int kChunkSteps = ChunkSteps(kRowTiles);
  static constexpr int kChunkParts = kChunkSteps * kStepInputs / kChunkInputs;
  static constexpr int kPartBytes = kRowTiles * kRowTileBytes;
  static constexpr int kStageWords4 = kStageSteps * kBf16StepWords4;
  static_assert(kChunkSteps % 2 == 0 && kChunkSteps % kStageSteps == 0 &&
                kStepInputs * 2 == kChunkInputs);
  using Sums = TileSums<1, kRowTiles>;
  using Step = Words4[kBf16Pieces];

  TANDEM_DEVICE static int FirstRowTile() {
    return kHasGroups ? KeptInRegister(BlockX()) * kRowTiles : 0;
  }
  // The warps of a block take a tile each in a turn: warp 0 tile BlockY(), then every this many.
  TANDEM_DEVICE static int TilesOfTurn(const FewRowsPlan& plan) { return plan.warps * plan.blocks; }

  // The ring of chunks of rows.
  class Chunks {
   public:
    TANDEM_DEVICE Chunks(unsigned char* rows, PhaseBarrier* barriers)
        : rows_(rows), barriers_(barriers) {}

    TANDEM_DEVICE void Init(int num_readers) const {
      for (int i = 0; i < kRowStages; ++i) {
        InitPhases(full(i), CopyArrivals());
        InitPhases(empty(i), num_readers);
      }
      InitPhases(factors(), 1);
    }
    TANDEM_DEVICE unsigned char* rows(int index) const {
      return rows_ + index * (kChunkParts * kPartBytes);
    }
    TANDEM_DEVICE PhaseBarrier* full(int index) const { return barriers_ + index; }
    TANDEM_DEVICE PhaseBarrier* empty(int index) const { return barriers_ + kRowStages + index; }
    TANDEM_DEVICE PhaseBarrier* factors() const { return barriers_ + 2 * kRowStages; }

   private:
    unsigned char* const rows_;
    PhaseBarrier* const barriers_;
  };

  // One warp's weights: the stages of its tiles, one tile after the other.
  class Weights {
   public:
    TANDEM_DEVICE Weights(const Task& task, int warp, unsigned char* shared, PhaseBarrier* barriers)
        : task_(task),
          ring_(reinterpret_cast<Words4*>(shared) + warp * task.plan.stages * kStageWords4),
          barriers_(barriers + warp * task.plan.stages),
          tile_(BlockY() + warp * task.plan.blocks) {}

    TANDEM_DEVICE void Begin() {
      RingPlace place;
      for (int i = 0; i < task_.plan.stages; ++i, place.Next(task_.plan.stages))
        Copy(place.index());
    }
    // Loads a lane's part of a step, which is `in_chunk` of its chunk. The first step of a stage
    // waits for its copy; the last one, and the tile's, copies another stage to its place.
    TANDEM_DEVICE void Load(int in_chunk, bool is_last, Step& to) {
      const int in_stage = in_chunk % kStageSteps;
      if (in_stage == 0) WaitForPhase(barriers_ + place_.index(), place_.parity());
      const Words4* const from =
          ring_ + place_.index() * kStageWords4 + in_stage * kBf16StepWords4 + Lane();
      TANDEM_UNROLL
      for (int i = 0; i < kBf16Pieces; ++i) to[i] = cuda::Load(from + i * kWarpSize);
      if (in_stage < kStageSteps - 1 && !is_last) return;
      SyncWarp();
      Copy(place_.index());
      place_.Next(task_.plan.stages);
    }

   private:
    // Starts to copy the next stage, if there is one.
    TANDEM_DEVICE void Copy(int place) {
      if (tile_ >= task_.product.num_tiles) return;
      const int num_steps = NumSteps(task_.product.x.cols), left = num_steps - step_;
      const int bytes = (left < kStageSteps ? left : kStageSteps) * kWeightStepBytes;
      const auto* const from = static_cast<const Words4*>(task_.product.weight) +
                               (int64_t{tile_} * num_steps + step_) * kBf16StepWords4;
      ExpectCopies(barriers_ + place, bytes);
      CopyByWarp(ring_ + place * kStageWords4, from, bytes, barriers_ + place);
      EndCopies(barriers_ + place);
      step_ = left <= kStageSteps ? 0 : step_ + kStageSteps;
      tile_ = left <= kStageSteps ? tile_ + TilesOfTurn(task_.plan) : tile_;
    }

    const Task& task_;
    Words4* const ring_;
    PhaseBarrier* const barriers_;
    RingPlace place_;
    // The next stage to copy.
    int tile_;
    int step_ = 0;
  };

  // Adds step `step` of a chunk.
  TANDEM_DEVICE static void MultiplyStep(const Step& weights, int step, const unsigned char* rows,
                                         Sums& sums) {
    const unsigned char* const of_step = rows + step / 2 * kPartBytes + LaneOffset(step % 2);
    Words4 tiles[kRowTiles];
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) tiles[r] = LoadMatrices(of_step + r * kRowTileBytes);
    TANDEM_UNROLL
    for (int half = 0; half < kBf16Pieces; ++half) {
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const uint32_t pair[2] = {tiles[r].words[2 * half], tiles[r].words[2 * half + 1]};
        MultiplyTile(weights[half], pair, sums[0][r]);
      }
    }
  }
  // The offset, in a tile of rows, of the 16 bytes whose address this lane gives for a step.
  TANDEM_DEVICE static int LaneOffset(int half) {
    const int row = Lane() % kTileRows;
    const int first_half = row * kRowBytes + (Lane() / kTileRows ^ row) * 16;
    return first_half ^ half * (kRowBytes / 2);
  }

  TANDEM_DEVICE static void Multiply(const Task& task, int warp, Weights& weights,
                                     const Chunks& chunks, const float* factors) {
    const TileProductTask& product = task.product;
    const int num_steps = NumSteps(product.x.cols);
    const int first_row_tile = FirstRowTile();
    RingPlace chunk;
    // The weights of a step are loaded while those of the step before are multiplied.
    Step even, odd;
    for (int first = BlockY(); first < product.num_tiles; first += TilesOfTurn(task.plan)) {
      const int tile = first + warp * task.plan.blocks;
      const bool multiplies = tile < product.num_tiles;
      Sums sums = {};
      if (multiplies) weights.Load(0, num_steps == 1, even);
      for (int left = num_steps; left > 0; left -= kChunkSteps) {
        WaitForPhase(chunks.full(chunk.index()), chunk.parity());
        const unsigned char* const rows = chunks.rows(chunk.index());
        if (multiplies && left >= kChunkSteps) {
          TANDEM_UNROLL
          for (int s = 0; s < kChunkSteps; s += 2) {
            weights.Load(s + 1, false, odd);
            MultiplyStep(even, s, rows, sums);
            if (s + 2 < kChunkSteps || left > kChunkSteps) {
              weights.Load((s + 2) % kChunkSteps, left == s + 3, even);
            }
            MultiplyStep(odd, s + 1, rows, sums);
          }
        } else if (multiplies) {
          for (int s = 0; s < left; s += 2) {
            if (s + 1 < left) weights.Load(s + 1, s + 2 == left, odd);
            MultiplyStep(even, s, rows, sums);
            if (s + 2 < left) weights.Load(s + 2, s + 3 == left, even);
            if (s + 1 < left) MultiplyStep(odd, s + 1, rows, sums);
          }
        }
        SyncWarp();
        if (Lane() == 0) Arrive(chunks.empty(chunk.index()));
        chunk.Next(kRowStages);
      }
      if (first == BlockY()) WaitForPhase(chunks.factors(), 0);
      if (!multiplies) continue;
      // Not unrolled: the code of eight tiles would take more registers than the main loop.
      TANDEM_UNROLL_BY(1)
      for (int r = 0; r < kRowTiles; ++r) {
        TileSums<1, 1> of_tile = {};
        TANDEM_UNROLL
        for (int i = 0; i < kRowTiles; ++i) {
          TANDEM_UNROLL
          for (int j = 0; j < 4; ++j) of_tile[0][0][j] = i == r ? sums[0][i][j] : of_tile[0][0][j];
        }
        EndTiles<1, 1>(product, tile, first_row_tile + r, of_tile, factors + r * kTileRows);
      }
    }
  }

  // Copies the chunks of rows for each turn, and the factors.
  TANDEM_DEVICE static void CopyRows(const Task& task, const Chunks& chunks, float* factors) {
    const TileProductTask& product = task.product;
    WaitForKernelsBefore();
    const int num_parts = CeilDiv(product.x.cols, kChunkInputs);
    const int num_tiles = CeilDiv(product.out.rows, kTileRows);
    const int first_tile = FirstRowTile();
    const int64_t first_row = int64_t{first_tile} * kTileRows;
    RingPlace chunk;
    bool is_first_round = true;  // places are empty
    int num_factors = 0;
    for (int turn = BlockY(); turn < product.num_tiles; turn += TilesOfTurn(task.plan)) {
      for (int first = 0; first < num_parts; first += kChunkParts) {
        if (!is_first_round) WaitForPhase(chunks.empty(chunk.index()), chunk.parity() ^ 1);
        const int parts = num_parts - first < kChunkParts ? num_parts - first : kChunkParts;
        ExpectCopies(chunks.full(chunk.index()), parts * kPartBytes);
        for (int part = 0; part < parts; ++part) {
          CopyPart(product, first + part, first_tile, num_tiles,
                   chunks.rows(chunk.index()) + part * kPartBytes, chunks.full(chunk.index()));
        }
        EndCopies(chunks.full(chunk.index()));
        is_first_round = is_first_round && chunk.index() + 1 < kRowStages;
        chunk.Next(kRowStages);
        // While the chunks of the first turn are read, some factors at a time.
        if (num_factors == kRows) continue;
        StoreFactors<kFactorsAtOnce>(product, first_row + num_factors, factors + num_factors);
        num_factors += kFactorsAtOnce;
      }
      if (turn > BlockY()) continue;
      for (; num_factors < kRows; num_factors += kFactorsAtOnce) {
        StoreFactors<kFactorsAtOnce>(product, first_row + num_factors, factors + num_factors);
      }
      SyncWarp();
      if (Lane() == 0) Arrive(chunks.factors());
    }
  }
  // Copies the tiles of rows from `first_tile` on; in place of those after the last, the last.
  TANDEM_DEVICE static void CopyPart(const TileProductTask& product, int part, int first_tile,
                                     int num_tiles, unsigned char* to, PhaseBarrier* full) {
    const auto* const from =
        static_cast<const unsigned char*>(product.rows) + int64_t{part} * num_tiles * kRowTileBytes;
    if (first_tile + kRowTiles <= num_tiles) {
      return CopyByWarp(to, from + int64_t{first_tile} * kRowTileBytes, kPartBytes, full);
    }
    for (int r = 0; r < kRowTiles; ++r) {
      const int tile = first_tile + r < num_tiles ? first_tile + r : num_tiles - 1;
      CopyByWarp(to + r * kRowTileBytes, from + int64_t{tile} * kRowTileBytes, kRowTileBytes, full);
    }
  }
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
    EndProduct(task.end, value, RowOf(task.out, first_row + Lane()) + output, LoadsBefore());
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
