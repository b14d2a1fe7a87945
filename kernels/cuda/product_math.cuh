// What products with packed weights share, whether rows are few (product_kernels.cuh) or many
// (product_many_rows.cuh): what lanes multiply with, how sums are scaled and how a product ends.
// Their bits do not depend on which of the two computes them.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

// What a lane multiplies with in a step of a tile, and what becomes of a stage's sums.
struct Bf16Weight {
  static constexpr int kPieces = kWeightStepBytes / 16 / kWarpSize;  // of 16 bytes
  static constexpr int kPieceSteps = 1;                              // that all pieces are of
  static constexpr int kChainUnit = 1;                               // of steps
  static constexpr bool kHasScales = false;

  TANDEM_DEVICE static Words4 Factor(const Words4 (&pieces)[kPieces], int, int half) {
    return pieces[half];
  }
};

// Whole numbers up to 127, which bf16 has exactly; a group's sums are scaled, not its weights.
struct Int8Weight {
  static constexpr int kPieces = kInt8StepBytes / 16 / kWarpSize;
  static constexpr int kPieceSteps = 1;
  static constexpr int kChainUnit = kGroupSteps;
  static constexpr bool kHasScales = true;

  TANDEM_DEVICE static Words4 Factor(const Words4 (&pieces)[kPieces], int, int half) {
    Words4 factor;
    TANDEM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t four = pieces[0].words[2 * half + i];
      factor.words[2 * i] = Whole(SelectBytes(four, kExponent, 0x4140));
      factor.words[2 * i + 1] = Whole(SelectBytes(four, kExponent, 0x4342));
    }
    return factor;
  }

 private:
  // Behind this byte, seven bits b are the bf16 number 128 + b.
  static constexpr uint32_t kExponent = 0x43;
  // A byte is its seven low bits, less 128 if the eighth is set: 128 + them, less 128 or 256, which
  // is 128 with that bit.
  TANDEM_DEVICE static uint32_t Whole(uint32_t pair) {
    return AddBf16(pair & 0xFF7FFF7Fu, (pair & 0xFF80FF80u) | 0x80008000u);
  }
};

// Likewise, up to 8.
struct Int4Weight {
  static constexpr int kPieces = 1;
  static constexpr int kPieceSteps = 2;
  static constexpr int kChainUnit = kGroupSteps;
  static constexpr bool kHasScales = true;

  TANDEM_DEVICE static Words4 Factor(const Words4 (&pieces)[kPieces], int step, int half) {
    // Four bits b behind this are the bf16 number 128 + b, which is 136 more than the weight.
    constexpr uint32_t kExponent = 0x43004300;
    constexpr uint32_t kMinus136 = 0xC308C308;
    const uint32_t eight = pieces[0].words[2 * step + half];
    Words4 factor;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      factor.words[i] = AddBf16((eight >> 4 * i & 0x000F000F) | kExponent, kMinus136);
    }
    return factor;
  }
};

// What is done with a sum of products, and where it goes.
TANDEM_DEVICE void EndProduct(ProductEnd end, float value, float* out) {
  Store(out, end == ProductEnd::kAdd ? Load(out) + value : value);
}
TANDEM_DEVICE float SwiGlu(float gate, float up) { return gate / (1.0f + Exponential(-gate)) * up; }

// A lane's sums of tiles of outputs times tiles of rows: of outputs lane / 4 (0, 1) and 8 more (2,
// 3) with rows lane % 4 * 2 and one more.
template <int kOutputTiles, int kRowTiles>
using TileSums = float[kOutputTiles][kRowTiles][4];

template <int kOutputTiles, int kRowTiles, typename Do>
TANDEM_DEVICE void ForEachSum(Do&& what) {
  TANDEM_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) what(tile, r, i);
    }
  }
}

// Tile `tile` of a weight. Behind the last one comes the last once more, whose outputs EndOutput
// drops.
TANDEM_DEVICE int WeightTile(const TileProductTask& task, int tile) {
  return tile < task.num_tiles ? tile : task.num_tiles - 1;
}

// The sums of a chain of steps, of the tiles from `first_tile` on.
template <typename Weight, int kOutputTiles, int kRowTiles>
class ChainSums {
 public:
  using Sums = TileSums<kOutputTiles, kRowTiles>;

  // Behind it the chain begins at `step`, with sums of 0.
  TANDEM_DEVICE ChainSums(const TileProductTask& task, int first_tile, int step, int end)
      : task_(task), first_tile_(first_tile), end_(end), group_{}, sums_{} {
    LoadScales(step);
  }

  // Adds step `step`. A lane's pieces of the step's tiles begin `tile_words4` after each other; the
  // step is `in_piece` among those of its pieces.
  TANDEM_DEVICE void Add(int step, const Words4* weights, int tile_words4, int in_piece,
                         const Words4 (&rows)[kRowTiles]) {
    if constexpr (!Weight::kHasScales) {
      Multiply(weights, tile_words4, in_piece, rows, sums_);
    } else {
      Multiply(weights, tile_words4, in_piece, rows, group_);
      if ((step + 1) % kGroupSteps == 0 || step + 1 == end_) EndGroup(step + 1);
    }
  }

  TANDEM_DEVICE const Sums& sums() const { return sums_; }
  TANDEM_DEVICE void Clear() {
    ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) { sums_[tile][r][i] = 0.0f; });
  }

 private:
  TANDEM_DEVICE static void Multiply(const Words4* weights, int tile_words4, int in_piece,
                                     const Words4 (&rows)[kRowTiles], Sums& sums) {
    TANDEM_UNROLL
    for (int tile = 0; tile < kOutputTiles; ++tile) {
      Words4 pieces[Weight::kPieces];
      TANDEM_UNROLL
      for (int i = 0; i < Weight::kPieces; ++i) {
        pieces[i] = Load(weights + tile * tile_words4 + i * kWarpSize);
      }
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Words4 weight = Weight::Factor(pieces, in_piece, half);
        TANDEM_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          const uint32_t pair[2] = {rows[r].words[2 * half], rows[r].words[2 * half + 1]};
          MultiplyTile(weight, pair, sums[tile][r]);
        }
      }
    }
  }

  TANDEM_DEVICE void EndGroup(int next_step) {
    ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) {
      sums_[tile][r][i] = MulAdd(group_[tile][r][i], scales_[tile][i / 2], sums_[tile][r][i]);
      group_[tile][r][i] = 0.0f;
    });
    LoadScales(next_step);
  }

  // Of the group that begins at `step`, a group before they are needed.
  TANDEM_DEVICE void LoadScales(int step) {
    TANDEM_UNROLL
    for (int i = 0; i < 2 * kOutputTiles; ++i) {
      if (!Weight::kHasScales || step >= end_) continue;
      const int64_t tile = WeightTile(task_, first_tile_ + i / 2);
      const int64_t at = tile * NumGroups(task_.x.cols) + step / kGroupSteps;
      scales_[i / 2][i % 2] = Load(task_.scales + at * kTileOutputs + Lane() / 4 + i % 2 * 8);
    }
  }

  const TileProductTask& task_;
  const int first_tile_;
  const int end_;
  Sums group_;  // of weights with scales: of the group so far
  Sums sums_;
  float scales_[kOutputTiles][2];  // of the group, for outputs lane / 4 and 8 more
};

// Ends the product of `row` and output `output` of the weight's tile `tile`, whose chains add up to
// `value`, times `factor`. Of kSwiGlu it is one of the gate, the first 8, and `up` is that of the
// output 8 behind it.
TANDEM_DEVICE void EndOutput(const TileProductTask& task, int64_t row, int tile, int output,
                             float factor, float value, float up) {
  const bool is_pair = task.end == ProductEnd::kSwiGlu;
  const int out_col = tile * (is_pair ? kTileOutputs / 2 : kTileOutputs) + output;
  if (row >= task.out.rows || out_col >= task.out.cols) return;
  value = value * factor;
  up = up * factor;
  if (task.bias != nullptr) {
    const float* const bias = task.bias + tile * kTileOutputs + output;
    value = value + Load(bias);
    if (is_pair) up = up + Load(bias + kTileOutputs / 2);
  }
  if (is_pair) value = SwiGlu(value, up);
  EndProduct(task.end, value, RowOf(task.out, row) + out_col);
}
// Of rows that were packed.
TANDEM_DEVICE float FactorOf(const TileProductTask& task, int64_t row) {
  return task.factors == nullptr || row >= task.out.rows ? 1.0f : Load(task.factors + row);
}

// The end of a block whose warps have a chain each of the same tiles: the chains' sums, added in
// order.
template <int kOutputTiles, int kRowTiles>
struct ChainEnd {
  static constexpr int kOutputs = kOutputTiles * kTileOutputs;
  static constexpr int kRows = kRowTiles * kTileRows;

  // out: [rows][outputs]
  TANDEM_DEVICE static void StoreSums(const TileSums<kOutputTiles, kRowTiles>& sums, float* out) {
    ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) {
      const int output = tile * kTileOutputs + Lane() / 4 + i / 2 * 8;
      const int row = r * kTileRows + Lane() % 4 * 2 + i % 2;
      Store(out + row * kOutputs + output, sums[tile][r][i]);
    });
  }
  // chain_sums: [chains][rows][outputs]; factor_of(row in the block) is what its sums are to be
  // multiplied with
  template <typename FactorOfRow>
  TANDEM_DEVICE static void AddChains(const TileProductTask& task, const float* chain_sums,
                                      const FactorOfRow& factor_of) {
    const bool is_pair = task.end == ProductEnd::kSwiGlu;
    const int tile_outputs = is_pair ? kTileOutputs / 2 : kTileOutputs;
    const int outputs = kOutputTiles * tile_outputs;
    for (int i = ThreadIndex(); i < kRows * outputs; i += kChains * kWarpSize) {
      const int row = i / outputs;
      const int tile = i % outputs / tile_outputs;
      const int output = i % tile_outputs;
      const int in_block = tile * kTileOutputs + output;
      const float up = is_pair ? Sum(chain_sums, row, in_block + tile_outputs) : 0.0f;
      EndOutput(task, int64_t{BlockX()} * kRows + row, BlockY() * kOutputTiles + tile, output,
                factor_of(row), Sum(chain_sums, row, in_block), up);
    }
  }

 private:
  TANDEM_DEVICE static float Sum(const float* chain_sums, int row, int output) {
    float sum = 0.0f;
    TANDEM_UNROLL
    for (int chain = 0; chain < kChains; ++chain) {
      sum = sum + Load(chain_sums + (chain * kRows + row) * kOutputs + output);
    }
    return sum;
  }
};

// The end of a warp that has all chains of its tiles, added in order.
template <int kOutputTiles, int kRowTiles>
TANDEM_DEVICE void EndTiles(const TileProductTask& task, int first_tile, int64_t first_row_tile,
                            const TileSums<kOutputTiles, kRowTiles>& totals) {
  const bool is_pair = task.end == ProductEnd::kSwiGlu;
  TANDEM_UNROLL
  for (int i = 0; i < kOutputTiles; ++i) {
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      TANDEM_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int64_t row = (first_row_tile + r) * kTileRows + Lane() % 4 * 2 + j;
        const float low = totals[i][r][j], high = totals[i][r][2 + j];
        const float factor = FactorOf(task, row);
        EndOutput(task, row, first_tile + i, Lane() / 4, factor, low, high);
        if (!is_pair) EndOutput(task, row, first_tile + i, Lane() / 4 + 8, factor, high, 0.0f);
      }
    }
  }
}

// Tile `tile` of rows that were packed. Behind the last one comes the last once more; nothing is
// stored for it.
TANDEM_DEVICE int RowTile(const TileProductTask& task, int tile) {
  const int last = CeilDiv(task.out.rows, kTileRows) - 1;
  return tile < last ? tile : last;
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_
