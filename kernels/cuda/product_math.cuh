// Shared by products with packed weights of few rows (product_kernels.cuh) and of many rows
// (product.cu): the summation and the epilogue. The bits do not depend on which of the two computes
// a product.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/next_rows.cuh"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

// Stores a sum of products, or adds it to `out`. Returns what it stored.
//   before: returns what `out` has
template <typename Before>
TANDEM_DEVICE float EndProduct(Epilogue end, float value, float* out, const Before& before) {
  if (end == Epilogue::kAdd) value = before(out) + value;
  Store(out, value);
  return value;
}
struct LoadsBefore {
  TANDEM_DEVICE float operator()(const float* out) const { return Load(out); }
};
// Applies the activation of a gated epilogue.
TANDEM_DEVICE float Gated(Epilogue end, float gate, float up) {
  float steepness = gate;
  if (end == Epilogue::kGeGlu) {
    const float cube = gate * gate * gate;
    steepness = 1.59576912f * MulAdd(0.044715f, cube, gate);
  }
  return gate / (1.0f + Exponential(-steepness)) * up;
}

// A position in a ring of places, each with a phase barrier.
class RingPlace {
 public:
  TANDEM_DEVICE int index() const { return bits_ & ~kParity; }
  TANDEM_DEVICE int parity() const { return bits_ & kParity ? 1 : 0; }
  TANDEM_DEVICE void Next(int num_places) {
    bits_ = index() + 1 == num_places ? ~bits_ & kParity : bits_ + 1;
  }

 private:
  static constexpr int kParity = 1 << 16;
  int bits_ = 0;  // the index, and the parity
};

// A lane's sums for tiles of outputs times tiles of rows: of outputs lane / 4 (elements 0, 1) and
// lane / 4 + 8 (elements 2, 3), with rows lane % 4 * 2 and the next one.
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

// Clamps a tile of a weight to the last one. EndOutput drops the outputs of tiles after the last.
TANDEM_DEVICE int WeightTile(const TileProductTask& task, int tile) {
  return tile < task.num_tiles ? tile : task.num_tiles - 1;
}

// A lane's pieces of 16 bytes in a step of a tile of weights of bf16: one for each half.
inline constexpr int kBf16Pieces = kWeightStepBytes / 16 / kWarpSize;
inline constexpr int kBf16StepWords4 = kBf16Pieces * kWarpSize;

// Adds a step of weights of bf16 to sums.   weights: the lane's part; tiles are consecutive
template <int kOutputTiles, int kRowTiles>
TANDEM_DEVICE void MultiplyBf16(const Words4* weights, const Words4 (&rows)[kRowTiles],
                                TileSums<kOutputTiles, kRowTiles>& sums) {
  TANDEM_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    TANDEM_UNROLL
    for (int half = 0; half < kBf16Pieces; ++half) {
      const Words4 weight = Load(weights + tile * kBf16StepWords4 + half * kWarpSize);
      TANDEM_UNROLL
      for (int r = 0; r < kRowTiles; ++r) {
        const uint32_t pair[2] = {rows[r].words[2 * half], rows[r].words[2 * half + 1]};
        MultiplyTile(weight, pair, sums[tile][r]);
      }
    }
  }
}

// Applies the epilogue to the product of `row` and output `output` of the weight's tile `tile`. Its
// sum is `value`, which is first multiplied with `factor`. If the epilogue IsGated, the output is
// one of the gate (the first 8 of a tile), and `up` is the sum of output `output` + 8. Stores the
// result if it has a place of its own, and returns it, or 0 outside of the matrix.
template <typename Before = LoadsBefore>
TANDEM_DEVICE float EndOutput(const TileProductTask& task, int64_t row, int tile, int output,
                              float factor, float value, float up, const Before& before = {}) {
  const bool is_pair = IsGated(task.end);
  const int out_col = tile * (is_pair ? kTileOutputs / 2 : kTileOutputs) + output;
  if (row >= task.out.rows || out_col >= task.out.cols) return 0.0f;
  value = value * factor;
  up = up * factor;
  if (task.bias != nullptr) {
    const float* const bias = task.bias + tile * kTileOutputs + output;
    value = value + Load(bias);
    if (is_pair) up = up + Load(bias + kTileOutputs / 2);
  }
  if (is_pair) value = Gated(task.end, value, up);
  if (task.out.data == nullptr) return value;
  return EndProduct(task.end, value, RowOf(task.out, row) + out_col, before);
}
// Sets the factors of the sums of some rows, in all lanes: those of the norm, or 1.
template <int kCount>
TANDEM_DEVICE void FindFactors(const TileProductTask& task, int64_t first_row,
                               float (&factors)[kCount]) {
  const int num_squares = NumSquares(task.x.cols);
  const bool is_normed = task.norm.weight != nullptr;
  float chains[kCount] = {};
  for (int tile = Lane(); is_normed && tile < num_squares; tile += kWarpSize) {
    float squares[kCount];
    TANDEM_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const int64_t row = first_row + i < task.out.rows ? first_row + i : task.out.rows - 1;
      squares[i] = Load(task.squares + row * num_squares + tile);
    }
    TANDEM_UNROLL
    for (int i = 0; i < kCount; ++i) chains[i] = chains[i] + squares[i];
  }
  TANDEM_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const float total = WarpSum(chains[i]);
    factors[i] = is_normed ? InverseRoot(total, task.x.cols, task.norm.epsilon) : 1.0f;
  }
}
TANDEM_DEVICE float FactorOf(const TileProductTask& task, int64_t row) {
  float factors[1];
  FindFactors(task, row, factors);
  return factors[0];
}
// A warp stores the factors of kCount rows in shared memory.
template <int kCount>
TANDEM_DEVICE void StoreFactors(const TileProductTask& task, int64_t first_row, float* factors) {
  float found[kCount];
  FindFactors(task, first_row, found);
  TANDEM_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (Lane() == 0) Store(factors + i, found[i]);
  }
}
// The same for all rows of a block, which are whole tiles: warp `warp` of `num_warps` does its
// share.
//   factors: [num_rows]
TANDEM_DEVICE void StoreFactors(const TileProductTask& task, int64_t first_row, int num_rows,
                                int warp, int num_warps, float* factors) {
  constexpr int kAtOnce = 4;
  for (int row = warp * kAtOnce; row < num_rows; row += num_warps * kAtOnce) {
    StoreFactors<kAtOnce>(task, first_row + row, factors + row);
  }
}

// Ends a chain if one warp computes all chains: adds it to the totals, in order.
template <int kOutputTiles, int kRowTiles>
TANDEM_DEVICE void EndChain(TileSums<kOutputTiles, kRowTiles>& chain,
                            TileSums<kOutputTiles, kRowTiles>& totals) {
  ForEachSum<kOutputTiles, kRowTiles>([&](int tile, int r, int i) {
    totals[tile][r][i] = totals[tile][r][i] + chain[tile][r][i];
    chain[tile][r][i] = 0.0f;
  });
}

// Ends a block whose warps each have one chain of the same tiles: adds the sums of the chains in
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
  // chain_sums: [chains][rows][outputs]; factors: [rows], of the sums
  TANDEM_DEVICE static void AddChains(const TileProductTask& task, const float* chain_sums,
                                      const float* factors) {
    const bool is_pair = IsGated(task.end);
    const int tile_outputs = is_pair ? kTileOutputs / 2 : kTileOutputs;
    const int outputs = kOutputTiles * tile_outputs;
    for (int i = ThreadIndex(); i < kRows * outputs; i += kChains * kWarpSize) {
      const int row = i / outputs;
      const int tile = i % outputs / tile_outputs;
      const int output = i % tile_outputs;
      const int in_block = tile * kTileOutputs + output;
      const float up = is_pair ? Sum(chain_sums, row, in_block + tile_outputs) : 0.0f;
      EndOutput(task, int64_t{BlockX()} * kRows + row, BlockY() * kOutputTiles + tile, output,
                Load(factors + row), Sum(chain_sums, row, in_block), up);
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

// Stores a tile of rows times a tile of the weight for the next product.
//   values: the lane's results (TileSums); the second of each row are unused if the epilogue
//   IsGated
TANDEM_DEVICE void StoreTile(const TileProductTask& task, int row_tile, int tile,
                             const float (&values)[2][2]) {
  const bool is_pair = IsGated(task.end);
  const int output = Lane() / 4, row = row_tile * kTileRows + Lane() % 4 * 2;
  const int col = tile * (is_pair ? kTileOutputs / 2 : kTileOutputs) + output;
  const bool is_odd = output % 2 != 0;
  TANDEM_UNROLL
  for (int half = 0; half < 2; ++half) {
    if (is_pair && half == 1) break;
    const float of_rows[2] = {Weighted(task.next, col + 8 * half, values[0][half]),
                              Weighted(task.next, col + 8 * half, values[1][half])};
    const uint32_t pair = ExchangePair(is_odd, of_rows, 4);
    if (row + is_odd >= task.out.rows) continue;
    StorePair(task.next, task.out.rows, row + is_odd, col - is_odd + 8 * half, pair);
  }
  if (task.next.norm == nullptr) return;
  TANDEM_UNROLL
  for (int j = 0; j < 2; ++j) {
    float squares = PairOfSquares(values[j][0], values[j][1]);
    TANDEM_UNROLL
    for (int mask = 4; mask <= 16; mask *= 2) squares = squares + ShuffleXor(squares, mask);
    if (output != j || row + j >= task.out.rows) continue;
    StoreSquares(task.next, task.out.cols, row + j, tile, squares);
  }
}

// Loads what a lane's results of a tile of rows times a tile of the weight are added to.
TANDEM_DEVICE void LoadTileBefore(const TileProductTask& task, int64_t row_tile, int tile,
                                  float (&before)[2][2]) {
  TANDEM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t row = row_tile * kTileRows + Lane() % 4 * 2 + i / 2;
    const int col = tile * kTileOutputs + Lane() / 4 + i % 2 * 8;
    if (row >= task.out.rows || col >= task.out.cols) continue;
    before[i / 2][i % 2] = Load(RowOf(task.out, row) + col);
  }
}

// Ends a warp that computed whole outputs. With `kLoadsAhead`, what all results are added to is
// loaded before the first is stored: a load waits for the stores before it.
//   factors: of the sums of the rows of these tiles
template <int kOutputTiles, int kRowTiles, bool kLoadsAhead = false>
TANDEM_DEVICE void EndTiles(const TileProductTask& task, int first_tile, int64_t first_row_tile,
                            const TileSums<kOutputTiles, kRowTiles>& totals, const float* factors) {
  const bool is_pair = IsGated(task.end);
  TANDEM_UNROLL
  for (int i = 0; i < kOutputTiles; ++i) {
    float before[kLoadsAhead ? kRowTiles : 1][2][2];
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      if (!kLoadsAhead || task.end != Epilogue::kAdd) break;
      LoadTileBefore(task, first_row_tile + r, first_tile + i, before[kLoadsAhead ? r : 0]);
    }
    TANDEM_UNROLL
    for (int r = 0; r < kRowTiles; ++r) {
      float values[2][2] = {};
      TANDEM_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int in_tiles = r * kTileRows + Lane() % 4 * 2 + j;
        const int64_t row = first_row_tile * kTileRows + in_tiles;
        const float low = totals[i][r][j], high = totals[i][r][2 + j];
        const float factor = Load(factors + in_tiles);
        const auto end = [&](int half, float value, float up) {
          const int output = Lane() / 4 + 8 * half;
          if constexpr (!kLoadsAhead) {
            return EndOutput(task, row, first_tile + i, output, factor, value, up);
          } else {
            return EndOutput(task, row, first_tile + i, output, factor, value, up,
                             [&](const float*) { return before[r][j][half]; });
          }
        };
        values[j][0] = end(0, low, high);
        if (!is_pair) values[j][1] = end(1, high, 0.0f);
      }
      if (task.next.image == nullptr || first_tile + i >= task.num_tiles) continue;
      StoreTile(task, static_cast<int>(first_row_tile) + r, first_tile + i, values);
    }
  }
}

// Clamps a tile of packed rows to the last one. No output is stored for tiles after the last.
TANDEM_DEVICE int RowTile(const TileProductTask& task, int tile) {
  const int last = CeilDiv(task.out.rows, kTileRows) - 1;
  return tile < last ? tile : last;
}

// A step of a tile of rows of bf16 in shared memory: [4 parts][8 rows] of 16 bytes, so that lanes
// read different banks.
inline constexpr int kRowsStepWords = kRowsStepBytes / 4;
TANDEM_DEVICE int RowsStepWord(int word) {
  return (word * kTileRows + Lane() / 4) * 4 + Lane() % 4;
}
// A lane's part of a step of a tile of rows.
TANDEM_DEVICE Words4 LoadRows(const uint32_t* step) {
  Words4 rows;
  TANDEM_UNROLL
  for (int word = 0; word < 4; ++word) rows.words[word] = Load(step + RowsStepWord(word));
  return rows;
}
TANDEM_DEVICE void StoreRows(const Words4& rows, uint32_t* step) {
  TANDEM_UNROLL
  for (int word = 0; word < 4; ++word) Store(step + RowsStepWord(word), rows.words[word]);
}
// Starts to copy step `step` of tile `tile` of the task's rows.
TANDEM_DEVICE void CopyRows(const TileProductTask& task, int tile, int step, uint32_t* to) {
  const int row = Lane() % kTileRows, part = Lane() / kTileRows;
  const int64_t offset =
      RowsImageOffset(CeilDiv(task.out.rows, kTileRows), RowTile(task, tile) * kTileRows + row,
                      step * kStepInputs + part * 8);
  CopyAsync16(to + Lane() * 4, static_cast<const unsigned char*>(task.rows) + offset);
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_MATH_CUH_
