// Stores rows in the form in which the product that reads them next needs them (NextRows in
// operations.h): rounded to bf16, with the sums of squares of its norm.
#ifndef TANDEM_KERNELS_CUDA_NEXT_ROWS_CUH_
#define TANDEM_KERNELS_CUDA_NEXT_ROWS_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

// Stores columns `col`, which is even, and col + 1 of a row.
//   num_rows: of the matrix
TANDEM_DEVICE void StorePair(const NextRows& next, int num_rows, int row, int col, uint32_t pair) {
  const int64_t offset = RowsImageOffset(CeilDiv(num_rows, kTileRows), row, col);
  Store(reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(next.image) + offset), pair);
}
TANDEM_DEVICE void StoreSquares(const NextRows& next, int cols, int row, int tile, float sum) {
  Store(next.squares + int64_t{row} * NumSquares(cols) + tile, sum);
}
// Returns a number times its column's weight in the norm.
TANDEM_DEVICE float Weighted(const NextRows& next, int col, float number) {
  return next.norm == nullptr ? number : number * Load(next.norm + col);
}

// Lane i and lane i ^ mask have two numbers each of neighbouring columns; lanes with an odd column
// keep the second pair, the others the first. Returns the lane's pair.
//   numbers: those of the first pair and of the second one
TANDEM_DEVICE uint32_t ExchangePair(bool is_odd, const float (&numbers)[2], int mask) {
  const float own = is_odd ? numbers[1] : numbers[0];
  const float other = ShuffleXor(is_odd ? numbers[0] : numbers[1], mask);
  return is_odd ? PackBf16(other, own) : PackBf16(own, other);
}

// Stores a warp's 32 neighbouring columns of a row; `col` is the lane's. Only lanes for which
// `is_in` holds have a column.
TANDEM_DEVICE void StoreColumns(const NextRows& next, int num_rows, int row, int col, float number,
                                bool is_in) {
  const float own = is_in ? Weighted(next, col, number) : 0.0f;
  const float other = ShuffleXor(own, 1);
  if (is_in && col % 2 == 0) StorePair(next, num_rows, row, col, PackBf16(own, other));
}

// Stores a row of `x`, whose stores a barrier must have ordered before. The threads of a block call
// it. Eight threads have a tile of 16 columns at a time.
template <int kThreads>
TANDEM_DEVICE void StoreRow(const NextRows& next, const MatrixView& x, int row) {
  constexpr int kTiles = kThreads / 8;
  const int column = ThreadIndex() % 8;
  const bool is_odd = column % 2 != 0;
  for (int first = 0; first < NumSquares(x.cols); first += kTiles) {
    const int tile = first + ThreadIndex() / 8, col = tile * kTileOutputs + column;
    const bool is_in = tile < NumSquares(x.cols);
    float numbers[2] = {}, weighted[2] = {};
    TANDEM_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (is_in) numbers[i] = Load(RowOf(x, row) + col + 8 * i);
      if (is_in) weighted[i] = Weighted(next, col + 8 * i, numbers[i]);
    }
    const uint32_t pair = ExchangePair(is_odd, weighted, 1);
    if (is_in) StorePair(next, x.rows, row, is_odd ? col - 1 + 8 : col, pair);
    if (next.norm == nullptr) continue;
    float squares = PairOfSquares(numbers[0], numbers[1]);
    TANDEM_UNROLL
    for (int mask = 1; mask <= 4; mask *= 2) squares = squares + ShuffleXor(squares, mask);
    if (is_in && column == 0) StoreSquares(next, x.cols, row, tile, squares);
  }
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_NEXT_ROWS_CUH_
