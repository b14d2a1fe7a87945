#include "kernels/cuda/product_math.cuh"
#include "kernels/cuda/warpgroup_shapes.h"

namespace tandem::cuda {

// Products of many rows with packed weights of bf16, on Hopper. A block computes 8 tiles of outputs
// by kRowTiles tiles of rows: two warpgroups multiply, each warp of them has a tile of outputs, and
// a warp of the third copies stages of 64 inputs for all. Blocks stay for several such tiles, so
// the copies for the next one run while the warps end this one. The bits are those of
// product_kernels.cuh.
template <int kRowTiles>
struct WarpgroupProductKernel {
  using Task = TileProductTask;
  static constexpr bool kUsesWarpgroups = true;
  static constexpr int kThreads = (kWideWarps + 4) * kWarpSize;
  static constexpr WideShared kAt = WideSharedOf(kRowTiles);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    auto* const full = reinterpret_cast<PhaseBarrier*>(shared + kAt.full);
    auto* const empty = reinterpret_cast<PhaseBarrier*>(shared + kAt.empty);
    if (ThreadIndex() == 0) {
      for (int stage = 0; stage < kWideStages; ++stage) {
        InitPhases(full + stage, CopyArrivals());
        InitPhases(empty + stage, kWideWarps);
      }
      FencePhases();
    }
    Barrier();
    // All threads have 168 registers, of which sums of 256 rows take 128. The compiler needs more.
    constexpr bool kMovesRegisters = kRowTiles == 32;
    if (WarpIndex() >= kWideWarps) {
      if constexpr (kMovesRegisters) LowerRegisters<40>();
      if (WarpIndex() == kWideWarps) return CopyStages(task, shared, full, empty);
      WaitForKernelsBefore();
    } else {
      if constexpr (kMovesRegisters) RaiseRegisters<232>();
      Multiply(task, shared, full, empty);
    }
  }

 private:
  // A place in the ring of stages. Stages are filled again and again, so that barriers alternate
  // in parity.
  struct Place {
    int stage = 0;
    int parity = 0;

    TANDEM_DEVICE void Advance() {
      stage = stage == kWideStages - 1 ? 0 : stage + 1;
      parity = stage == 0 ? parity ^ 1 : parity;
    }
  };

  // Copies of a stage: a chunk of inputs of a tile.
  struct Stage {
    WideTile tile;
    int chunk;
    unsigned char* to;
    PhaseBarrier* full;

    TANDEM_DEVICE int NumSteps(const Task& task) const {
      const int left = cuda::NumSteps(task.x.cols) - chunk * kChunkSteps;
      return left < kChunkSteps ? left : kChunkSteps;
    }
    TANDEM_DEVICE int RowBytes(const Task& task) const {
      const int left = CeilDiv(task.out.rows, kTileRows) - tile.row_tile;
      return (left < kRowTiles ? left : kRowTiles) * kRowTileBytes;
    }
    TANDEM_DEVICE void CopyWeights(const Task& task) const {
      const int bytes = NumSteps(task) * kWeightStepBytes;
      ExpectCopies(full, RowBytes(task) + kWideOutputTiles * bytes);
      const auto* const weights = static_cast<const unsigned char*>(task.weight);
      const int num_steps = cuda::NumSteps(task.x.cols);
      TANDEM_UNROLL
      for (int i = 0; i < kWideOutputTiles; ++i) {
        const int64_t step =
            int64_t{WeightTile(task, tile.output_tile + i)} * num_steps + chunk * kChunkSteps;
        CopyByWarp(to + kAt.weights + i * kChunkSteps * kWeightStepBytes,
                   weights + step * kWeightStepBytes, bytes, full);
      }
    }
    TANDEM_DEVICE void CopyRows(const Task& task) const {
      const int64_t row_tile = int64_t{chunk} * CeilDiv(task.out.rows, kTileRows) + tile.row_tile;
      CopyByWarp(to, static_cast<const unsigned char*>(task.rows) + row_tile * kRowTileBytes,
                 RowBytes(task), full);
      EndCopies(full);
    }
  };

  // The first weights are copied while the kernels before this one still run.
  TANDEM_DEVICE static void CopyStages(const Task& task, unsigned char* shared, PhaseBarrier* full,
                                       PhaseBarrier* empty) {
    const WideTiles tiles = WideTilesOf(task.out.rows, task.num_tiles, kRowTiles);
    const int num_chunks = CeilDiv(task.x.cols, kChunkInputs);
    const int ahead = num_chunks < kWideStages ? num_chunks : kWideStages;
    const auto stage_of = [&](int tile, int chunk, int stage) {
      return Stage{tiles.At(tile), chunk, shared + stage * kAt.stage_bytes, full + stage};
    };
    for (int i = 0; i < ahead; ++i) stage_of(BlockX(), i, i).CopyWeights(task);
    WaitForKernelsBefore();
    for (int i = 0; i < ahead; ++i) stage_of(BlockX(), i, i).CopyRows(task);
    Place place;
    for (int i = 0; i < ahead; ++i) place.Advance();
    int chunk = ahead;
    for (int tile = BlockX(); tile < tiles.count(); tile += task.num_sms) {
      for (; chunk < num_chunks; ++chunk) {
        // The phase of the round before. Before the first round it counts as ended.
        WaitForPhase(empty + place.stage, place.parity ^ 1);
        const Stage stage = stage_of(tile, chunk, place.stage);
        stage.CopyWeights(task);
        stage.CopyRows(task);
        place.Advance();
      }
      chunk = 0;
    }
  }

  TANDEM_DEVICE static void Multiply(const Task& task, const unsigned char* shared,
                                     PhaseBarrier* full, PhaseBarrier* empty) {
    WaitForKernelsBefore();
    const WideTiles tiles = WideTilesOf(task.out.rows, task.num_tiles, kRowTiles);
    const int num_steps = NumSteps(task.x.cols);
    const unsigned char* const weights =
        shared + kAt.weights + WarpIndex() * kChunkSteps * kWeightStepBytes;
    Place place;
    const auto load = [&](int step, Words4(&to)[kBf16Pieces]) {
      const auto* const from = reinterpret_cast<const Words4*>(
          weights + place.stage * kAt.stage_bytes + step * kWeightStepBytes);
      TANDEM_UNROLL
      for (int half = 0; half < kBf16Pieces; ++half)
        to[half] = Load(from + half * kWarpSize + Lane());
    };
    const auto release = [&](int stage) {
      SyncWarp();
      if (Lane() == 0) Arrive(empty + stage);
    };
    Words4 a[kChunkSteps][kBf16Pieces];  // a step that is multiplied, and the next one
    TileSums<1, kRowTiles> sums;
    for (int tile = BlockX(); tile < tiles.count(); tile += task.num_sms) {
      ForEachSum<1, kRowTiles>([&](int, int r, int i) { sums[0][r][i] = 0.0f; });
      WaitForPhase(full + place.stage, place.parity);
      load(0, a[0]);
      int before = -1;  // the stage of the chunk before
      for (int step = 0; step < num_steps; step += kChunkSteps) {
        const SharedRows rows = RowsAt(shared + place.stage * kAt.stage_bytes);
        MultiplyStep(rows, 0, a[0], sums[0]);
        MultiplyWait<1>();
        if (before >= 0) release(before);
        before = place.stage;
        if (step + 1 < num_steps) {
          load(1, a[1]);
          MultiplyStep(rows, kStepInputs, a[1], sums[0]);
          MultiplyWait<1>();
        }
        place.Advance();
        if (step + kChunkSteps < num_steps) {
          WaitForPhase(full + place.stage, place.parity);
          load(0, a[0]);
        }
      }
      MultiplyWaitForAll(sums[0]);
      release(before);
      const WideTile at = tiles.At(tile);
      EndTiles<1, kRowTiles>(task, at.output_tile + WarpIndex(), at.row_tile, sums,
                             [&](int64_t row) { return FactorOf(task, row); });
    }
  }

  // Starts a group of products: a step from input `input` of the chunk on.
  TANDEM_DEVICE static void MultiplyStep(SharedRows rows, int input, Words4 (&a)[kBf16Pieces],
                                         float (&sums)[kRowTiles][4]) {
    FenceRegisters(sums, a);
    TANDEM_UNROLL
    for (int half = 0; half < kBf16Pieces; ++half) {
      MultiplyRowsAsync(a[half], FromInput(rows, input + half * kStepInputs / kBf16Pieces), sums);
    }
    MultiplyCommit();
  }
};

namespace {

template <int kRowTiles>
Error EnqueueWide(const TileProductTask& task, Stream stream) {
  return Enqueue<WarpgroupProductKernel<kRowTiles>>(
      task, WideShape(task.out.rows, task.num_tiles, task.num_sms, kRowTiles), stream);
}

}  // namespace

Error HasWarpgroupProducts(Stream stream, bool* has) {
  return HasCode<WarpgroupProductKernel<kWideRowTiles[0]>>(stream, has);
}

Error LaunchWarpgroupProduct(const TileProductTask& task, Stream stream) {
  switch (WideRowTiles(task.out.rows, task.num_tiles, task.num_sms, task.variant)) {
    case 32:
      return EnqueueWide<32>(task, stream);
    case 24:
      return EnqueueWide<24>(task, stream);
    case 16:
      return EnqueueWide<16>(task, stream);
    default:
      return EnqueueWide<8>(task, stream);
  }
}

}  // namespace tandem::cuda
