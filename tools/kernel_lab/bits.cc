// The bit tests: properties of tensor cores on which the order of sums relies.
#include "tools/kernel_lab/bits.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "base/split_mix.h"
#include "tools/kernel_lab/lab.h"
#include "tools/kernel_lab/product_tasks.h"

namespace tandem::kernel_lab {
namespace {

constexpr int kOutputs = 16;    // of a tile
constexpr int kRows = 8;        // of a tile
constexpr int kStepDepth = 16;  // inputs

// bf16 numbers, [rows, depth].
struct Bf16Matrix {
  Bf16Matrix(int rows, int depth) : depth(depth), bits(size_t(rows) * depth) {}
  uint16_t& at(int row, int k) { return bits[size_t(row) * depth + k]; }
  uint16_t at(int row, int k) const { return bits[size_t(row) * depth + k]; }
  int depth;
  std::vector<uint16_t> bits;
};

enum class Numbers { kArbitrary, kNearOne, kPlain };

// Arbitrary bits of any number, NaN and infinity included; or numbers near one, with some zeros,
// subnormal numbers and infinities; or plain numbers, from 2^-8 to 1.
Bf16Matrix RandomMatrix(int rows, int depth, Numbers numbers, uint64_t* random) {
  Bf16Matrix matrix(rows, depth);
  for (uint16_t& bits : matrix.bits) {
    *random = SplitMix64(*random);
    const auto any = static_cast<uint16_t>(*random);
    const int die = static_cast<int>(*random >> 32 & 0x3FF);
    if (numbers == Numbers::kArbitrary) {
      bits = any;
    } else if (numbers == Numbers::kPlain) {
      bits = static_cast<uint16_t>((any & 0x807F) | (119 + die % 8) << 7);
    } else if (die < 20) {
      bits = any & 0x8000;
    } else if (die < 40) {
      bits = any & 0x807F;
    } else if (die == 40) {
      bits = (any & 0x8000) | 0x7F80;
    } else {
      bits = (any & 0x807F) | (126 + (die & 1)) << 7;
    }
  }
  return matrix;
}

// The registers of mma.sync (kernels/cuda/simt.h) for tiles of `count` rows of a matrix from row
// `first` on: [steps, lanes, words].
void AppendRegisters(const Bf16Matrix& matrix, int first, int count, std::vector<uint32_t>* words) {
  for (int step = 0; step < matrix.depth / kStepDepth; ++step) {
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int word = 0; word < count / 4; ++word) {
        const int row = first + group + (count == kOutputs ? word % 2 * 8 : 0);
        const int k = step * kStepDepth + pair + (count == kOutputs ? word / 2 : word) * 8;
        words->push_back(matrix.at(row, k) | uint32_t{matrix.at(row, k + 1)} << 16);
      }
    }
  }
}

// Place of an output and a row in a tile's sums, [lanes, 4].
int PlaceOf(int output, int row) {
  return (output % 8 * 4 + row / 2) * 4 + output / 8 * 2 + row % 2;
}

// Tiles of a chain: each of `as` outputs times each of `bs` rows.
struct Chain {
  Bf16Matrix a;              // [16 tiles, depth]
  Bf16Matrix b;              // [8 tiles, depth]
  std::vector<float> start;  // [tiles of a, tiles of b, lanes, 4]; empty: +0
};

std::vector<float> SumsOf(Lab& lab, const Chain& chain) {
  const int a_tiles = static_cast<int>(chain.a.bits.size()) / chain.a.depth / kOutputs;
  const int b_tiles = static_cast<int>(chain.b.bits.size()) / chain.b.depth / kRows;
  std::vector<uint32_t> a, b;
  for (int i = 0; i < a_tiles; ++i) {
    for (int j = 0; j < b_tiles; ++j) {
      AppendRegisters(chain.a, i * kOutputs, kOutputs, &a);
      AppendRegisters(chain.b, j * kRows, kRows, &b);
    }
  }
  const size_t num_sums = size_t(a_tiles) * b_tiles * kOutputs * kRows;
  std::vector<float> start = chain.start;
  start.resize(num_sums);
  auto* const sums = static_cast<float*>(lab.Allocate(num_sums * 4));
  const TileChainTask task = {.a = lab.Upload(a),
                              .b = lab.Upload(b),
                              .start = lab.Upload(start),
                              .sums = sums,
                              .num_tiles = a_tiles * b_tiles,
                              .num_steps = chain.a.depth / kStepDepth};
  if (lab.ok()) lab.Poison(sums, num_sums * 4);
  lab.Run(task, "mma.sync");
  return lab.Download<float>(sums, num_sums);
}

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

void CompareBits(const std::vector<float>& got, const std::vector<float>& want,
                 Comparison* comparison) {
  std::vector<uint32_t> got_bits(got.size()), want_bits(want.size());
  for (size_t i = 0; i < got.size(); ++i) got_bits[i] = BitsOf(got[i]);
  for (size_t i = 0; i < want.size(); ++i) want_bits[i] = BitsOf(want[i]);
  comparison->Compare(got_bits, want_bits);
}

// (1), (2): wgmma against mma.sync.
void CompareWide(Lab& lab, int rows, bool a_from_registers, bool starts_without_sums,
                 Comparison* comparison) {
  constexpr int kWideOutputs = 64, kDepth = 8 * kStepDepth;
  uint64_t random = static_cast<uint64_t>(rows) * 2 + a_from_registers;
  for (const Numbers numbers : {Numbers::kArbitrary, Numbers::kNearOne, Numbers::kPlain}) {
    // One step of arbitrary bits: more would leave only NaN.
    const int depth = numbers == Numbers::kArbitrary ? kStepDepth : kDepth;
    for (int repeat = 0; repeat < (numbers == Numbers::kArbitrary ? 16 : 4); ++repeat) {
      const Chain chain = {RandomMatrix(kWideOutputs, depth, numbers, &random),
                           RandomMatrix(rows, depth, numbers, &random),
                           {}};
      const size_t num_sums = size_t(kWideOutputs) * rows;
      auto* const sums = static_cast<float*>(lab.Allocate(num_sums * 4));
      const WideChainTask task = {.a = lab.Upload(chain.a.bits),
                                  .b = lab.Upload(chain.b.bits),
                                  .sums = sums,
                                  .rows = rows,
                                  .num_steps = depth / kStepDepth,
                                  .a_from_registers = a_from_registers,
                                  .starts_without_sums = starts_without_sums};
      if (lab.ok()) lab.Poison(sums, num_sums * 4);
      lab.Run(task, "wgmma");
      const std::vector<float> got = lab.Download<float>(sums, num_sums);
      CompareBits(got, SumsOf(lab, chain), comparison);
      if (!lab.ok()) return;
      lab.FreeMemory();
    }
  }
}

// (3): weights and rows exchanged.
void CompareExchanged(Lab& lab, Comparison* comparison) {
  uint64_t random = 3;
  for (const Numbers numbers : {Numbers::kNearOne, Numbers::kPlain}) {
    const Bf16Matrix x = RandomMatrix(kOutputs, 128, numbers, &random);
    const Bf16Matrix y = RandomMatrix(kOutputs, 128, numbers, &random);
    const std::vector<float> one = SumsOf(lab, {x, y, {}}), other = SumsOf(lab, {y, x, {}});
    if (!lab.ok()) return;
    std::vector<float> got, want;
    for (int i = 0; i < kOutputs; ++i) {
      for (int j = 0; j < kOutputs; ++j) {
        got.push_back(one[j / kRows * 128 + PlaceOf(i, j % kRows)]);
        want.push_back(other[i / kRows * 128 + PlaceOf(j, i % kRows)]);
      }
    }
    CompareBits(got, want, comparison);
  }
}

// (4): NaN and 3e38 in the other columns.
void CompareOtherColumns(Lab& lab, Comparison* comparison) {
  uint64_t random = 4;
  const Bf16Matrix a = RandomMatrix(kOutputs, 128, Numbers::kPlain, &random);
  const Bf16Matrix b = RandomMatrix(kRows, 128, Numbers::kPlain, &random);
  const std::vector<float> alone = SumsOf(lab, {a, b, {}});
  for (const float other : {std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    for (int kept = 0; kept < kRows; ++kept) {
      Bf16Matrix disturbed = b;
      for (int row = 0; row < kRows; ++row) {
        for (int k = 0; row != kept && k < b.depth; ++k) disturbed.at(row, k) = FloatToBf16(other);
      }
      const std::vector<float> sums = SumsOf(lab, {a, disturbed, {}});
      if (!lab.ok()) return;
      std::vector<float> got, want;
      for (int output = 0; output < kOutputs; ++output) {
        got.push_back(sums[PlaceOf(output, kept)]);
        want.push_back(alone[PlaceOf(output, kept)]);
      }
      CompareBits(got, want, comparison);
    }
  }
}

// (5): weights and sums times 2^s.
void CompareScaled(Lab& lab, Comparison* comparison) {
  uint64_t random = 5;
  const Bf16Matrix b = RandomMatrix(kRows, 128, Numbers::kPlain, &random);
  Bf16Matrix a = RandomMatrix(kOutputs, 128, Numbers::kPlain, &random);
  std::vector<float> start(kOutputs * kRows);
  for (float& sum : start) sum = Bf16ToFloat(a.bits[SplitMix64(random++) % a.bits.size()]) * 1.37f;
  const std::vector<float> plain = SumsOf(lab, {a, b, start});
  for (const int s : {-40, -7, -1, 1, 5, 60}) {
    Bf16Matrix scaled = a;
    for (uint16_t& bits : scaled.bits) bits = static_cast<uint16_t>(bits + s * 128);
    std::vector<float> scaled_start = start, want = plain;
    for (float& sum : scaled_start) sum = std::ldexp(sum, s);
    for (float& sum : want) sum = std::ldexp(sum, s);
    const std::vector<float> got = SumsOf(lab, {scaled, b, scaled_start});
    if (!lab.ok()) return;
    CompareBits(got, want, comparison);
  }
}

// (6): weights of 0 times values below 2 change nothing. Returns how many sums change where the
// values are large.
int64_t CompareZeroTimesLarge(Lab& lab, Comparison* comparison) {
  uint64_t random = 6;
  Bf16Matrix weights = RandomMatrix(kRows, 128, Numbers::kPlain, &random);
  Bf16Matrix values = RandomMatrix(kOutputs, 128, Numbers::kPlain, &random);
  const auto is_masked = [](int k) { return k % 3 == 1; };
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < weights.depth; ++k) {
      if (is_masked(k)) weights.at(row, k) = 0;
    }
  }
  const auto with = [&](float value) {
    Bf16Matrix changed = values;
    for (int i = 0; i < kOutputs; ++i) {
      for (int k = 0; k < values.depth; ++k) {
        if (is_masked(k)) changed.at(i, k) = FloatToBf16(i % 2 == 0 ? value : -value);
      }
    }
    return SumsOf(lab, {changed, weights, {}});
  };
  const std::vector<float> zeros = with(0.0f), small = with(1.9921875f), large = with(3e38f);
  if (!lab.ok()) return 0;
  CompareBits(small, zeros, comparison);
  int64_t changed = 0;
  for (size_t i = 0; i < zeros.size(); ++i) changed += BitsOf(large[i]) != BitsOf(zeros[i]);
  return changed;
}

// (7): whole products by all kernels: each row as alone.
void CompareProducts(Lab& lab, const Line& line, Comparison* comparison) {
  const std::vector<int> counts = lab.quick()
                                      ? std::vector<int>{1, 9, 17}
                                      : std::vector<int>{1, 5, 8, 9, 16, 17, 33, 64, 65, 130, 512};
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4K}) {
    for (const int rows : counts) {
      Line product = line;
      product.dtype = dtype;
      product.rows = rows;
      CompareRowsAlone(lab, product, comparison);
      if (!lab.ok()) return;
      lab.FreeMemory();
    }
  }
}

}  // namespace

void MeasureBits(Lab& lab, const Line& line, JsonLine* json) {
  Comparison comparison;
  if (line.op == "wgmma") {
    CompareWide(lab, line.first, line.second != 0, false, &comparison);
  } else if (line.op == "first_step") {
    CompareWide(lab, line.first, line.second != 0, true, &comparison);
  } else if (line.op == "exchanged") {
    CompareExchanged(lab, &comparison);
  } else if (line.op == "other_columns") {
    CompareOtherColumns(lab, &comparison);
  } else if (line.op == "scaled") {
    CompareScaled(lab, &comparison);
  } else if (line.op == "zero_times_large") {
    const int64_t changed = CompareZeroTimesLarge(lab, &comparison);
    json->Add("changed_by_3e38", changed);
  } else {
    CompareProducts(lab, line, &comparison);
  }
  AddComparison(comparison, json);
}

}  // namespace tandem::kernel_lab
