#include "kernels/cuda/product_math.cuh"
#include "kernels/cuda/warpgroup_shapes.h"

namespace tandem::cuda {

// Products of many rows with packed weights of bf16, on Hopper. A block computes 8 tiles of outputs
// by kRowTiles tiles of rows: two warpgroups multiply, and each warp of them has a tile of outputs.
// A warp of the third copies stages of 64 inputs for all, and the others compute the rows' factors.
// Blocks stay for several such tiles, so the copies for the next one run while the warps end this
// one. The bits are those of product_kernels.cuh.
//
// The blocks of a cluster compute adjacent outputs of the same rows. Each copies a part of the rows
// to all, so a stage is free when the warps of all blocks have read it.
template <int kRowTiles, int kCluster>
struct WarpgroupProductKernel {
  using Task = TileProductTask;
  static constexpr bool kUsesWarpgroups = true;
  static constexpr int kThreads = (kWideWarps + 1 + kWideFactorWarps) * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    const Barriers barriers{reinterpret_cast<PhaseBarrier*>(shared + kAt.barriers)};
    if (ThreadIndex() == 0) {
      for (int stage = 0; stage < kWideStages; ++stage) {
        InitPhases(barriers.full(stage), CopyArrivals());
        InitPhases(barriers.empty(stage), kCluster * kWideWarps);
      }
      InitPhases(barriers.factors_ready(), kWideFactorWarps);
      InitPhases(barriers.factors_read(), kWideWarps);
      FencePhases();
    }
    BarrierOfAll();
    // All threads have 168 registers at first, of which sums of 256 rows take 128. The compiler
    // needs more.
    constexpr bool kMovesRegisters = kRowTiles >= 24;
    if (WarpIndex() < kWideWarps) {
      if constexpr (kMovesRegisters) RaiseRegisters<232>();
      WaitForKernelsBefore();
      Multiply(task, shared, barriers);
    } else {
      if constexpr (kMovesRegisters) LowerRegisters<40>();
      if (WarpIndex() == kWideWarps) {
        CopyStages(task, shared, barriers);
      } else {
        WaitForKernelsBefore();
        ComputeFactors(task, reinterpret_cast<float*>(shared + kAt.factors), barriers);
      }
    }
    if constexpr (kCluster > 1) ClusterBarrier();
  }

 private:
  static constexpr WideShared kAt = WideSharedOf(kRowTiles);

  struct Barriers {
    PhaseBarrier* first;

    TANDEM_DEVICE PhaseBarrier* full(int stage) const { return first + stage; }
    TANDEM_DEVICE PhaseBarrier* empty(int stage) const { return first + kWideStages + stage; }
    TANDEM_DEVICE PhaseBarrier* factors_ready() const { return first + 2 * kWideStages; }
    TANDEM_DEVICE PhaseBarrier* factors_read() const { return first + 2 * kWideStages + 1; }
  };
  TANDEM_DEVICE static void BarrierOfAll() {
    if constexpr (kCluster > 1) {
      ClusterBarrier();
    } else {
      Barrier();
    }
  }
  TANDEM_DEVICE static int Rank() {
    if constexpr (kCluster > 1) return ClusterRank();
    return 0;
  }
  // The cluster's first tile, and the distance to the next.
  TANDEM_DEVICE static int FirstTile() { return BlockX() / kCluster; }
  TANDEM_DEVICE static int TilesApart(const Task& task) {
    return WideClusters(task.num_sms, kCluster);
  }
  // One arrival of the warp at each block, after what all its lanes did.
  TANDEM_DEVICE static void FreeStage(PhaseBarrier* empty, int lane) {
    if constexpr (kCluster > 1) {
      SyncWarp();
      if (lane < kCluster) ArriveAtBlock(lane, empty);
    } else {
      ArriveAsWarp(empty, lane);
    }
  }
  TANDEM_DEVICE static void WaitForFreeStage(PhaseBarrier* empty, int parity) {
    if constexpr (kCluster > 1) {
      WaitForPhaseOfCluster(empty, parity);
    } else {
      WaitForPhase(empty, parity);
    }
  }
  // One arrival of the warp, after what all its lanes did.
  TANDEM_DEVICE static void ArriveAsWarp(PhaseBarrier* barrier, int lane) {
    SyncWarp();
    if (lane == 0) Arrive(barrier);
  }
  TANDEM_DEVICE static WideTiles TilesOf(const Task& task) {
    return WideTilesOf(task.out.rows, task.num_tiles, {kRowTiles, kCluster});
  }

  // Copies of a stage: a chunk of inputs of a tile.
  struct Stage {
    WideTile tile;
    int rank;
    int chunk;
    unsigned char* to;
    PhaseBarrier* full;

    TANDEM_DEVICE int StepsOf(const Task& task) const {
      const int left = NumSteps(task.x.cols) - chunk * kChunkSteps;
      return left < kChunkSteps ? left : kChunkSteps;
    }
    TANDEM_DEVICE int RowTiles(const Task& task) const {
      const int left = CeilDiv(task.out.rows, kTileRows) - tile.row_tile;
      return left < kRowTiles ? left : kRowTiles;
    }
    TANDEM_DEVICE void CopyWeights(const Task& task) const {
      const int bytes = StepsOf(task) * kWeightStepBytes;
      ExpectCopies(full, RowTiles(task) * kRowTileBytes + kWideOutputTiles * bytes);
      const auto* const weights = static_cast<const unsigned char*>(task.weight);
      TANDEM_UNROLL
      for (int i = 0; i < kWideOutputTiles; ++i) {
        const int64_t tiles_before =
            WeightTile(task, tile.output_tile + rank * kWideOutputTiles + i);
        const int64_t step = tiles_before * NumSteps(task.x.cols) + chunk * kChunkSteps;
        CopyByWarp(to + kAt.weights + i * kChunkSteps * kWeightStepBytes,
                   weights + step * kWeightStepBytes, bytes, full);
      }
    }
    TANDEM_DEVICE void CopyRows(const Task& task) const {
      const int64_t chunks_before = int64_t{chunk} * CeilDiv(task.out.rows, kTileRows);
      const auto* const rows = static_cast<const unsigned char*>(task.rows) +
                               (chunks_before + tile.row_tile) * kRowTileBytes;
      const int num_tiles = RowTiles(task);
      if constexpr (kCluster > 1) {
        constexpr int kPartTiles = kRowTiles / kCluster;
        const int first = rank * kPartTiles;
        const int left = num_tiles - first;
        if (left > 0) {
          const int bytes = (left < kPartTiles ? left : kPartTiles) * kRowTileBytes;
          CopyToBlocksByWarp((1u << kCluster) - 1, to + first * kRowTileBytes,
                             rows + first * kRowTileBytes, bytes, full);
        }
      } else {
        CopyByWarp(to, rows, num_tiles * kRowTileBytes, full);
      }
      EndCopies(full);
    }
  };

  // The first weights are copied while the kernels before this one still run.
  TANDEM_DEVICE static void CopyStages(const Task& task, unsigned char* shared,
                                       const Barriers& barriers) {
    const WideTiles tiles = TilesOf(task);
    const int rank = Rank();
    const int num_chunks = CeilDiv(task.x.cols, kChunkInputs);
    const int ahead = num_chunks < kWideStages ? num_chunks : kWideStages;
    const auto stage_of = [&](int tile, int chunk, int index) {
      return Stage{tiles.At(tile), rank, chunk, shared + index * kAt.stage_bytes,
                   barriers.full(index)};
    };
    for (int i = 0; i < ahead; ++i) stage_of(FirstTile(), i, i).CopyWeights(task);
    WaitForKernelsBefore();
    for (int i = 0; i < ahead; ++i) stage_of(FirstTile(), i, i).CopyRows(task);
    RingPlace place;
    for (int i = 0; i < ahead; ++i) place.Next(kWideStages);
    int chunk = ahead;
    for (int tile = FirstTile(); tile < tiles.count(); tile += TilesApart(task)) {
      for (; chunk < num_chunks; ++chunk) {
        // The phase of the round before. Before the first round it counts as ended.
        WaitForFreeStage(barriers.empty(place.index()), place.parity() ^ 1);
        const Stage stage = stage_of(tile, chunk, place.index());
        stage.CopyWeights(task);
        stage.CopyRows(task);
        place.Next(kWideStages);
      }
      chunk = 0;
    }
  }

  // Most blocks have the same rows in all their tiles.
  TANDEM_DEVICE static void ComputeFactors(const Task& task, float* factors,
                                           const Barriers& barriers) {
    const WideTiles tiles = TilesOf(task);
    int row_tile = -1, parity = 1;
    for (int tile = FirstTile(); tile < tiles.count(); tile += TilesApart(task)) {
      if (tiles.At(tile).row_tile == row_tile) continue;
      row_tile = tiles.At(tile).row_tile;
      WaitForPhase(barriers.factors_read(), parity);
      parity ^= 1;
      StoreFactors(task, int64_t{row_tile} * kTileRows, kRowTiles * kTileRows,
                   WarpIndex() - (kWideWarps + 1), kWideFactorWarps, factors);
      ArriveAsWarp(barriers.factors_ready(), Lane());
    }
  }

  using Sums = TileSums<1, kRowTiles>;
  using Pieces = Words4[kBf16Pieces];  // a lane's weights of a step

  TANDEM_DEVICE static void Multiply(const Task& task, unsigned char* shared,
                                     const Barriers& barriers) {
    const WideTiles tiles = TilesOf(task);
    const int num_steps = NumSteps(task.x.cols);
    const int warp = KeptInRegister(WarpIndex()), lane = KeptByLane(Lane());
    const auto load = [&](int stage, int step, Pieces& to) {
      const auto* const from =
          reinterpret_cast<const Words4*>(shared + stage * kAt.stage_bytes + kAt.weights +
                                          (warp * kChunkSteps + step) * kWeightStepBytes);
      TANDEM_UNROLL
      for (int half = 0; half < kBf16Pieces; ++half) {
        to[half] = Load(from + half * kWarpSize + lane);
      }
    };
    const int first_output_tile = Rank() * kWideOutputTiles + warp;
    RingPlace place;
    int row_tile = -1, parity = 0;  // of the factors
    Pieces now, next;               // the first and the second step of a chunk
    Sums sums;
    for (int tile = FirstTile(); tile < tiles.count(); tile += TilesApart(task)) {
      ForEachSum<1, kRowTiles>([&](int, int r, int i) { sums[0][r][i] = 0.0f; });
      WaitForPhase(barriers.full(place.index()), place.parity());
      load(place.index(), 0, now);
      int before = -1;  // the stage of the chunk before
      for (int step = 0; step < num_steps; step += kChunkSteps) {
        const SharedRows rows = RowsAt(shared + place.index() * kAt.stage_bytes);
        MultiplyStep(rows, 0, now, sums);
        MultiplyWait<1>();
        if (before >= 0) FreeStage(barriers.empty(before), lane);
        before = place.index();
        if (step + 1 < num_steps) {
          load(place.index(), 1, next);
          MultiplyStep(rows, kStepInputs, next, sums);
          MultiplyWait<1>();
        }
        place.Next(kWideStages);
        if (step + kChunkSteps < num_steps) {
          WaitForPhase(barriers.full(place.index()), place.parity());
          load(place.index(), 0, now);
        }
      }
      MultiplyWaitForAll(sums[0]);
      FreeStage(barriers.empty(before), lane);
      const WideTile at = tiles.At(tile);
      if (at.row_tile != row_tile) WaitForPhase(barriers.factors_ready(), parity);
      if (at.row_tile != row_tile) parity ^= 1;
      row_tile = at.row_tile;
      EndTile(task, at, at.output_tile + first_output_tile, sums, shared);
      const int after = tile + TilesApart(task);
      if (after < tiles.count() && tiles.At(after).row_tile != row_tile) {
        ArriveAsWarp(barriers.factors_read(), lane);
      }
    }
  }

  // Starts a group of products: a step from input `input` of the chunk on.
  TANDEM_DEVICE static void MultiplyStep(SharedRows rows, int input, Pieces& weights, Sums& sums) {
    FenceRegisters(sums[0], weights);
    TANDEM_UNROLL
    for (int half = 0; half < kBf16Pieces; ++half) {
      MultiplyRowsAsync(weights[half], FromInput(rows, input + half * kStepInputs / kBf16Pieces),
                        sums[0]);
    }
    MultiplyCommit();
  }

  // Unrolled for all rows, the code would take 160 KB. So sums go through shared memory, whose
  // place, unlike a register's, may be computed. Each lane reads what it wrote.
  TANDEM_DEVICE static void EndTile(const Task& task, const WideTile& at, int output_tile,
                                    const Sums& sums, unsigned char* shared) {
    constexpr int kPartTiles = 4;
    auto* const moved =
        reinterpret_cast<Words4*>(shared + kAt.sums) + WarpIndex() * kWideEndTiles * kWarpSize;
    const auto* const factors = reinterpret_cast<const float*>(shared + kAt.factors);
    TANDEM_UNROLL_BY(1)
    for (int first = 0; first < kRowTiles; first += kWideEndTiles) {
      if ((at.row_tile + first) * kTileRows >= task.out.rows) break;
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        if (r / kWideEndTiles * kWideEndTiles != first) continue;
        Words4 four;
        TANDEM_UNROLL
        for (int i = 0; i < 4; ++i) four.words[i] = FloatToBits(sums[0][r][i]);
        Store(moved + (r - first) * kWarpSize + Lane(), four);
      }
      TANDEM_UNROLL_BY(1)
      for (int part = 0; part < kWideEndTiles; part += kPartTiles) {
        TileSums<1, kPartTiles> of_part;
        TANDEM_UNROLL
        for (int r = 0; r < kPartTiles; ++r) {
          const Words4 four = Load(moved + (part + r) * kWarpSize + Lane());
          TANDEM_UNROLL
          for (int i = 0; i < 4; ++i) of_part[0][r][i] = BitsToFloat(four.words[i]);
        }
        const int64_t row_tile = at.row_tile + first + part;
        EndTiles<1, kPartTiles, true>(task, output_tile, row_tile, of_part,
                                      factors + (first + part) * kTileRows);
      }
    }
  }
};

namespace {

template <int kRowTiles, int kCluster>
Error EnqueueWide(const TileProductTask& task, Stream stream) {
  const LaunchShape shape =
      WideShape(task.out.rows, task.num_tiles, task.num_sms, {kRowTiles, kCluster});
  return Enqueue<WarpgroupProductKernel<kRowTiles, kCluster>>(task, shape, stream);
}
template <int kRowTiles>
Error EnqueueWide(const TileProductTask& task, int cluster, Stream stream) {
  return cluster > 1 ? EnqueueWide<kRowTiles, 2>(task, stream)
                     : EnqueueWide<kRowTiles, 1>(task, stream);
}

}  // namespace

Error HasWarpgroupProducts(Stream stream, bool* has) {
  return HasCode<WarpgroupProductKernel<kWideVariants[0].row_tiles, kWideVariants[0].cluster>>(
      stream, has);
}

Error LaunchWarpgroupProduct(const TileProductTask& task, Stream stream) {
  const WideVariant variant =
      WideVariantOf(task.out.rows, task.num_tiles, task.num_sms, task.wide_variant);
  switch (variant.row_tiles) {
    case 32:
      return EnqueueWide<32>(task, variant.cluster, stream);
    case 24:
      return EnqueueWide<24>(task, variant.cluster, stream);
    case 16:
      return EnqueueWide<16>(task, variant.cluster, stream);
    default:
      return EnqueueWide<8>(task, variant.cluster, stream);
  }
}

}  // namespace tandem::cuda
