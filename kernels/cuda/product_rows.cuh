// Converts rows of f32 for products with packed weights: rounds them to bf16, or quantises them to
// integers of 8 bits. With a norm, multiplies them with its weights first, and stores the sums of
// squares of the norm (warp_math.cuh) for each tile of columns.
#ifndef TANDEM_KERNELS_CUDA_PRODUCT_ROWS_CUH_
#define TANDEM_KERNELS_CUDA_PRODUCT_ROWS_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

struct RowsStep {
  int tile;
  int num_tiles;
  int step;
  int num_steps;

  TANDEM_DEVICE int64_t of_all() const { return int64_t{tile} * num_steps + step; }
};

// A lane's part of a step of a tile of rows: eight numbers of row lane / 4.
struct Bf16Rows {
  TANDEM_DEVICE static int StepsOf(int inputs) { return NumSteps(inputs); }
  TANDEM_DEVICE static int InputOf(int i) { return RowsInput(Lane(), i / 2) + i % 2; }
  // Returns the sum of squares of the columns of a half of the step.
  TANDEM_DEVICE static float Squares(const float (&numbers)[8], int half) {
    const float* const first = numbers + 4 * half;
    float sum = PairOfSquares(first[0], first[2]) + PairOfSquares(first[1], first[3]);
    sum = sum + ShuffleXor(sum, 1);
    return sum + ShuffleXor(sum, 2);
  }
  TANDEM_DEVICE static Words4 Rounded(const float (&numbers)[8]) {
    Words4 packed;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) packed.words[i] = PackBf16(numbers[2 * i], numbers[2 * i + 1]);
    return packed;
  }
  TANDEM_DEVICE static void Pack(const float (&numbers)[8], void* packed, const RowsStep& at) {
    const Words4 rounded = Rounded(numbers);
    TANDEM_UNROLL
    for (int word = 0; word < 4; ++word) {
      const int64_t offset = RowsImageOffset(at.num_tiles, at.tile * kTileRows + Lane() / 4,
                                             at.step * kStepInputs + RowsInput(Lane(), word));
      Store(reinterpret_cast<uint32_t*>(static_cast<unsigned char*>(packed) + offset),
            rounded.words[word]);
    }
  }
};

// Gives the same numbers as QuantizeActivationGroup (kernels/cpu/block_kernels.h).
struct WholeRows {
  // A lane's numbers, with the scale and the sums of its row.
  struct Quantized {
    Words2 numbers;
    float scale;    // NaN if a number is not finite
    uint32_t sums;  // of the two halves (product_layout.h)
  };

  TANDEM_DEVICE static int StepsOf(int inputs) { return NumWholeRowsSteps(inputs); }
  TANDEM_DEVICE static int InputOf(int i) { return WholeRowsInput(Lane(), i); }
  TANDEM_DEVICE static float Squares(const float (&numbers)[8], int half) {
    float pairs[4];
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float own = numbers[4 * half + i], other = ShuffleXor(own, 2);
      pairs[i] = Lane() % 4 < 2 ? PairOfSquares(own, other) : PairOfSquares(other, own);
    }
    const float sum = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
    return sum + ShuffleXor(sum, 1);
  }
  TANDEM_DEVICE static Quantized Quantize(const float (&numbers)[8]) {
    constexpr uint32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000, kNotANumber = 0x7FC00000;
    constexpr float kNoActivation = 0x1p-100f;  // 127 divided by less might be infinite
    uint32_t most = 0;  // bits of magnitudes sort as the magnitudes do, with NaN after infinity
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) {
      const uint32_t bits = FloatToBits(numbers[i]) & kMagnitude;
      most = bits > most ? bits : most;
    }
    TANDEM_UNROLL
    for (int mask = 1; mask <= 2; ++mask) {
      const uint32_t other = ShuffleXor(most, mask);
      most = other > most ? other : most;
    }
    const float largest = BitsToFloat(most);
    const bool is_finite = most < kInfinity;
    const bool any = is_finite && largest >= kNoActivation;
    const float inverse = any ? 127.0f / largest : 0.0f;
    Quantized row = {{0, 0}, any ? largest / 127.0f : BitsToFloat(is_finite ? 0 : kNotANumber), 0};
    int sums[2] = {0, 0};
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int whole = any ? RoundToWhole(numbers[i] * inverse) : 0;
      row.numbers.words[i / 4] |= (static_cast<uint32_t>(whole) & 0xFF) << 8 * (i % 4);
      sums[i / 4] += whole;
    }
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      sums[half] += ShuffleXor(sums[half], 1);
      sums[half] += ShuffleXor(sums[half], 2);
      row.sums |= (static_cast<uint32_t>(sums[half]) & 0xFFFF) << 16 * half;
    }
    return row;
  }
  TANDEM_DEVICE static void Pack(const float (&numbers)[8], void* packed, const RowsStep& at) {
    const Quantized row = Quantize(numbers);
    auto* const to = static_cast<unsigned char*>(packed) + at.of_all() * kWholeRowsStepBytes;
    Store(reinterpret_cast<Words2*>(to) + Lane(), row.numbers);
    if (Lane() % 4 != 0) return;
    const int in_tile = Lane() / 4;
    auto* const notes =
        reinterpret_cast<uint32_t*>(to + kWholeRowsNumberBytes) + in_tile / 2 * 4 + in_tile % 2;
    Store(notes, FloatToBits(row.scale));
    Store(notes + 2, row.sums);
  }
};

// Each warp packs one step of a tile of rows.
template <typename Format>
struct PackRowsKernel {
  using Task = PackRowsTask;
  static constexpr int kThreads = kPackWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const ConstMatrixView& x = task.x;
    const RowsStep at = {.tile = BlockY(),
                         .num_tiles = CeilDiv(x.rows, kTileRows),
                         .step = BlockX() * kPackWarps + WarpIndex(),
                         .num_steps = Format::StepsOf(x.cols)};
    if (at.step >= at.num_steps) return;
    const int row = at.tile * kTileRows + Lane() / 4;
    const bool is_normed = task.norm.weight != nullptr;
    float numbers[8], weighted[8];
    TANDEM_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int input = at.step * kStepInputs + Format::InputOf(i);
      const bool is_in = row < x.rows && input < x.cols;
      numbers[i] = is_in ? Load(RowOf(x, row) + input) : 0.0f;
      weighted[i] = is_in && is_normed ? numbers[i] * Load(task.norm.weight + input) : numbers[i];
    }
    Format::Pack(weighted, task.out, at);
    if (!is_normed) return;
    const float squares[2] = {Format::Squares(numbers, 0), Format::Squares(numbers, 1)};
    const int half = Lane() % 4, tile = 2 * at.step + half, num_tiles = NumSquares(x.cols);
    if (half > 1 || row >= x.rows || tile >= num_tiles) return;
    Store(task.squares + int64_t{row} * num_tiles + tile, half == 0 ? squares[0] : squares[1]);
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PRODUCT_ROWS_CUH_
