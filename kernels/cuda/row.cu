// Embedding, gathering, argmax, norms and rotary angles. One block per row; its threads stride over
// the columns.
#include "kernels/cuda/block_math.cuh"
#include "kernels/cuda/block_numbers.cuh"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/next_rows.cuh"

namespace tandem::cuda {

struct EmbedKernel {
  using Task = EmbedTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int row = BlockX();
    const int id = Load(task.ids + row);
    if (id < 0 || id >= task.table.rows) return;
    float* const out = RowOf(task.out, row);
    const auto element = [&](int c) {
      return LoadAsFloat(task.table.data, task.table.dtype, id * task.table.stride + c);
    };
    ForEach(ThreadIndex(), task.out.cols, kThreads, element,
            [&](int c, float value) { Store(out + c, value); });
    if (task.next.image == nullptr) return;
    Barrier();
    StoreRow<kThreads>(task.next, task.out, row);
  }
};

// For a table of a block format: each thread converts four numbers at a time.
struct EmbedBlocksKernel {
  using Task = EmbedTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int id = Load(task.ids + BlockX());
    if (id < 0 || id >= task.table.rows) return;
    const BlockTiles tiles = BlockTilesOf(task.table.dtype);
    const int64_t first_piece = int64_t{id / kTileOutputs} * tiles.num_pieces(task.table.cols);
    const int output = id % kTileOutputs;
    float* const out = RowOf(task.out, BlockX());
    for (int c = 4 * ThreadIndex(); c < task.out.cols; c += 4 * kThreads) {
      const int step = c / kStepInputs;
      const unsigned char* const piece =
          static_cast<const unsigned char*>(task.table.data) +
          (first_piece + step / tiles.piece_steps()) * tiles.piece_bytes();
      Widen(tiles, piece, step % tiles.piece_steps(), output, c % kStepInputs, out + c);
    }
    if (task.next.image == nullptr) return;
    Barrier();
    StoreRow<kThreads>(task.next, task.out, BlockX());
  }

 private:
  // Same as WidenRow (kernels/blocks.h).
  TANDEM_DEVICE static void Widen(const BlockTiles& tiles, const unsigned char* piece, int step,
                                  int output, int input, float* out) {
    const uint32_t numbers = Numbers(tiles, piece, step, WholePlace(output, input));
    const int half = tiles.halves() == 2 ? input / 16 : 0;
    const float scale = Scale(tiles, piece + tiles.scales_at(), step, output, half);
    const float minimum =
        tiles.has_minimums ? Scale(tiles, piece + tiles.minimums_at(), step, output, half) : 0.0f;
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int number = static_cast<int>(numbers >> 8 * i & 0xFF) - tiles.zero;
      const float product = scale * static_cast<float>(number);
      Store(out + i, product + minimum);
    }
  }
  TANDEM_DEVICE static uint32_t Numbers(const BlockTiles& tiles, const unsigned char* piece,
                                        int step, PlaceOfWhole at) {
    const unsigned char* const numbers = piece + tiles.numbers_at(step, at.lane);
    if (tiles.bits == 8) return LoadAt<uint32_t>(numbers + 4 * at.place);
    const auto word = LoadAt<uint32_t>(numbers + at.place / 2 * 4);
    const HalvesOfBytes halves = tiles.has_table ? LookUp(word) : Halves(word);
    const uint32_t low = at.place % 2 == 0 ? halves.low : halves.high;
    if (tiles.bits == 4) return low;
    const auto high = LoadAt<uint32_t>(piece + tiles.high_bits_at(step, at.lane));
    return low | (high >> 2 * at.place & kLowPairs) << 4;
  }
  TANDEM_DEVICE static float Scale(const BlockTiles& tiles, const unsigned char* scales, int step,
                                   int output, int half) {
    const int pair = output % (kTileOutputs / 2), of_pair = output / (kTileOutputs / 2);
    const unsigned char* const record = scales + tiles.record_at(step, pair);
    if (!tiles.has_factors()) return F16ToFloat(LoadAt<uint16_t>(record + 2 * of_pair));
    return F16ToFloat(LoadAt<uint16_t>(scales + tiles.common_at(pair) + 2 * of_pair)) *
           ByteToFloat(LoadAt<uint16_t>(record + 2 * half), of_pair);
  }
};

struct GatherRowsKernel {
  using Task = GatherRowsTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int row = BlockX();
    const int index = Load(task.indices + row);
    if (index < 0 || index >= task.x.rows) return;
    const float* const from = RowOf(task.x, index);
    float* const out = RowOf(task.out, row);
    ForEach(
        ThreadIndex(), task.out.cols, kThreads, [&](int c) { return Load(from + c); },
        [&](int c, float value) { Store(out + c, value); });
  }
};

struct ArgMaxKernel {
  using Task = ArgMaxTask;
  static constexpr int kThreads = kLargestThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    const float* const x = RowOf(task.x, BlockX());
    Largest largest = Largest::Nothing();
    const int in_fours = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? task.x.cols / 4 : 0;
    const auto* const fours = reinterpret_cast<const Words4*>(x);
    TANDEM_UNROLL_BY(4)
    for (int i = ThreadIndex(); i < in_fours; i += kThreads) {
      const Words4 four = Load(fours + i);
      TANDEM_UNROLL
      for (int j = 0; j < 4; ++j) largest.See(BitsToFloat(four.words[j]), 4 * i + j);
    }
    for (int c = 4 * in_fours + ThreadIndex(); c < task.x.cols; c += kThreads) {
      largest.See(Load(x + c), c);
    }
    largest = LargestOfBlock(largest, reinterpret_cast<BlockScratch*>(shared));
    const int index = IsFinite(largest.value) ? largest.index : -1;
    if (ThreadIndex() == 0) Store(task.largest + BlockX(), index);
  }
};

// Returns the sum over a block: a tree in each warp, then warp after warp.
//   warp_sums: [warps], in shared memory
TANDEM_DEVICE float SumOfBlock(float sum, float* warp_sums) {
  sum = WarpSum(sum);
  if (Lane() == 0) Store(warp_sums + WarpIndex(), sum);
  Barrier();
  float total = 0.0f;
  for (int warp = 0; warp < kRowThreads / kWarpSize; ++warp) {
    total = total + Load(warp_sums + warp);
  }
  return total;
}

// Eight threads have a chain of squares, and at a time a tile of 16 columns.
struct RmsNormKernel {
  using Task = RmsNormTask;
  static constexpr int kThreads = kRowThreads;
  static_assert(kThreads == 8 * kSquareChains && kSquareChains == kWarpSize);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    auto* const chains = reinterpret_cast<float*>(shared);
    const int chain = ThreadIndex() / 8, column = ThreadIndex() % 8;
    const float* const x = RowOf(task.x, BlockX());
    float* const out = RowOf(task.out, BlockX());
    const auto value_at = [&](int c) { return c < task.x.cols ? Load(x + c) : 0.0f; };
    WaitForKernelsBefore();
    struct Pair {
      float first, second;
    };
    const auto pair_of = [&](int first_tile) {
      const int c = (first_tile + chain) * kTileOutputs + column;
      return Pair{value_at(c), value_at(c + 8)};
    };
    float sum = 0.0f;
    ForEach(0, NumSquares(task.x.cols), kSquareChains, pair_of, [&](int, const Pair& pair) {
      float squares = PairOfSquares(pair.first, pair.second);
      TANDEM_UNROLL
      for (int mask = 1; mask <= 4; mask *= 2) squares = squares + ShuffleXor(squares, mask);
      sum = sum + squares;
    });
    if (column == 0) Store(chains + chain, sum);
    Barrier();
    const float squares = WarpSum(Load(chains + Lane()));
    const float inverse = InverseRoot(squares, task.x.cols, task.epsilon);
    ForEach(ThreadIndex(), task.x.cols, kThreads, value_at,
            [&](int c, float value) { Store(out + c, value * inverse * Load(task.weight + c)); });
  }
};

// The sum has 256 chains, by column modulo 256, which are added by SumOfBlock.
struct SubtractMeanKernel {
  using Task = SubtractMeanTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    auto* const warp_sums = reinterpret_cast<float*>(shared);  // [warps]
    const float* const x = RowOf(task.x, BlockX());
    float* const out = RowOf(task.out, BlockX());
    const auto value_at = [&](int c) { return Load(x + c); };
    WaitForKernelsBefore();
    float sum = 0.0f;
    ForEach(ThreadIndex(), task.x.cols, kThreads, value_at,
            [&](int, float value) { sum = sum + value; });
    const float mean = SumOfBlock(sum, warp_sums) / static_cast<float>(task.x.cols);
    ForEach(ThreadIndex(), task.x.cols, kThreads, value_at,
            [&](int c, float value) { Store(out + c, value - mean); });
  }
};

struct ScaleAndCapKernel {
  using Task = ScaleAndCapTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    float* const x = RowOf(task.x, BlockX());
    ForEach(
        ThreadIndex(), task.x.cols, kThreads, [&](int c) { return Load(x + c); },
        [&](int c, float value) {
          const float scaled = value * task.scale;
          Store(x + c, task.soft_cap > 0.0f ? SoftCapped(scaled, task.soft_cap) : scaled);
        });
  }
};

struct AddScaledKernel {
  using Task = AddScaledTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const float* const x = RowOf(task.x, BlockX());
    float* const sum = RowOf(task.sum, BlockX());
    ForEach(
        ThreadIndex(), task.x.cols, kThreads, [&](int c) { return Load(x + c); },
        [&](int c, float value) {
          const float scaled = value * task.scale;
          Store(sum + c, Load(sum + c) + scaled);
        });
  }
};

struct RotaryAnglesKernel {
  using Task = RotaryAnglesTask;
  static constexpr int kThreads = kAngleThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    const RowPlace place = PlaceOf(task.rows, task.lengths, BlockX());
    WaitForKernelsBefore();
    if (place.sequence < 0) return;
    const int half = task.out.cols / 2;
    const float* const frequencies = task.tables.inverse_frequencies +
                                     int64_t{half} * Load(task.tables.of_sequence + place.sequence);
    float* const out = RowOf(task.out, BlockX());
    for (int i = ThreadIndex(); i < half; i += kThreads) {
      const float angle = static_cast<float>(place.position) * Load(frequencies + i);
      const float magnitude = Load(task.tables.magnitudes + i);
      Store(out + i, Cosine(angle) * magnitude);
      Store(out + half + i, Sine(angle) * magnitude);
    }
  }
};

Error Launch(const EmbedTask& task, Stream stream) {
  if (IsBlocks(task.table.dtype)) {
    return Enqueue<EmbedBlocksKernel>(task, RowShape(task.out.rows), stream);
  }
  return Enqueue<EmbedKernel>(task, RowShape(task.out.rows), stream);
}

Error Launch(const GatherRowsTask& task, Stream stream) {
  return Enqueue<GatherRowsKernel>(task, RowShape(task.out.rows), stream);
}

Error Launch(const ArgMaxTask& task, Stream stream) {
  return Enqueue<ArgMaxKernel>(task, ArgMaxShape(task.x.rows), stream);
}

Error Launch(const RmsNormTask& task, Stream stream) {
  return Enqueue<RmsNormKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const SubtractMeanTask& task, Stream stream) {
  return Enqueue<SubtractMeanKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const ScaleAndCapTask& task, Stream stream) {
  return Enqueue<ScaleAndCapKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const AddScaledTask& task, Stream stream) {
  return Enqueue<AddScaledKernel>(task, RowShape(task.x.rows), stream);
}

Error Launch(const RotaryAnglesTask& task, Stream stream) {
  return Enqueue<RotaryAnglesKernel>(task, RowShape(task.out.rows), stream);
}

}  // namespace tandem::cuda
