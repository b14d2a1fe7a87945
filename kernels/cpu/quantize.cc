#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/blocks.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/cpu_isa.h"

namespace tandem {
namespace {

constexpr int kMaxGroups = 8;  // in a block
constexpr int kHalf = kBlockGroup / 2;

// Rounds to the nearest integer, ties to even. REQUIRES: |x| < 2^22.
float Rounded(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// 1 / x, or 0 if x is so small that the quotient might overflow.
float InverseOf(float x) { return std::abs(x) > 0x1p-120f ? 1.0f / x : 0.0f; }

// The entry of largest magnitude.
float Largest(const float* x, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  return largest;
}

// ---- Numbers with a scale ----

// Numbers that are the integers from `low` to `high`.
struct IntegerRange {
  float low;
  float high;

  float Nearest(float x) const { return std::min(std::max(Rounded(x), low), high); }
  uint8_t CodeOf(float x, int zero) const {
    return static_cast<uint8_t>(static_cast<int>(Nearest(x)) + zero);
  }
  float SearchScale(const float* x, int count) const {
    return BestCpuKernels().search_scale(x, count, low, high);
  }
};

// The numbers in kIq4Numbers.
struct TableNumbers {
  // The index of the nearest number: counts the midpoints between neighbours that are below x.
  static uint8_t CodeOf(float x, int /*zero*/) {
    uint8_t code = 0;
    for (int i = 0; i < 15; ++i) {
      code += x > 0.5f * static_cast<float>(kIq4Numbers[i] + kIq4Numbers[i + 1]) ? 1 : 0;
    }
    return code;
  }

  // The same search as CpuKernels::search_scale.
  static float SearchScale(const float* x, int count) {
    constexpr int kSteps = 6;  // on each side
    const float largest = Largest(x, count);
    if (std::abs(largest) < 0x1p-100f) return 0.0f;
    float best_gain = -1.0f;
    float best = 0.0f;
    for (const float edge : {kIq4Numbers[0], kIq4Numbers[15]}) {
      for (int step = -kSteps; step <= kSteps; ++step) {
        const float inverse = edge * (1.0f + 0.025f * static_cast<float>(step)) / largest;
        float dot = 0.0f;
        float norm = 0.0f;
        for (int i = 0; i < count; ++i) {
          const float q = kIq4Numbers[CodeOf(x[i] * inverse, 0)];
          dot += x[i] * q;
          norm += q * q;
        }
        if (norm > 0.0f && dot * dot > best_gain * norm) {
          best_gain = dot * dot / norm;
          best = dot / norm;
        }
      }
    }
    return best;
  }
};

template <typename Numbers>
void SetCodes(const float* x, int count, float scale, const Numbers& numbers, int zero,
              uint8_t* codes) {
  const float inverse = InverseOf(scale);
  for (int i = 0; i < count; ++i) codes[i] = numbers.CodeOf(x[i] * inverse, zero);
}

// ---- Numbers with a scale and a minimum ----

struct Line {
  float scale = 0.0f;
  float minimum = 0.0f;
};

Line SearchLine(const float* x, int count, float most, bool minimum_is_negative) {
  Line line;
  BestCpuKernels().search_line(x, count, most, minimum_is_negative, &line.scale, &line.minimum);
  return line;
}

void SetLineCodes(const float* x, int count, const Line& line, float most, uint8_t* codes) {
  const float inverse = InverseOf(line.scale);
  for (int i = 0; i < count; ++i) {
    const float code = Rounded((x[i] - line.minimum) * inverse);
    codes[i] = static_cast<uint8_t>(std::min(std::max(code, 0.0f), most));
  }
}

// ---- Blocks ----

// Maps the largest weight to 127: with 8 bits a search gains nothing.
void QuantizeQ8_0(const float* x, BlockGroup* group) {
  const float largest = std::abs(Largest(x, kBlockGroup));
  group->zero = 128;
  group->scale = FloatToF16(largest / 127.0f);
  const float inverse = largest >= 0x1p-100f ? 127.0f / largest : 0.0f;
  for (int i = 0; i < kBlockGroup; ++i) {
    group->codes[i] = static_cast<uint8_t>(static_cast<int>(Rounded(x[i] * inverse)) + 128);
  }
}

template <typename Numbers>
void QuantizeScaled(const float* x, const Numbers& numbers, int zero, BlockGroup* group) {
  group->zero = static_cast<uint8_t>(zero);
  group->scale = FloatToF16(numbers.SearchScale(x, kBlockGroup));
  SetCodes(x, kBlockGroup, F16ToFloat(group->scale), numbers, zero, group->codes);
}

void QuantizeLine(const float* x, float most, BlockGroup* group) {
  const Line line = SearchLine(x, kBlockGroup, most, false);
  group->scale = FloatToF16(line.scale);
  group->minimum = FloatToF16(line.minimum);
  SetLineCodes(x, kBlockGroup, {F16ToFloat(group->scale), F16ToFloat(group->minimum)}, most,
               group->codes);
}

// Values as products of a common f16 with integer factors.
struct Factors {
  uint16_t common = 0;
  int8_t factors[2 * kMaxGroups] = {};

  float ValueOf(int i) const { return F16ToFloat(common) * static_cast<float>(factors[i]); }
};

// Finds the factors of `values`. The one of largest magnitude gets the factor farthest from 0.
Factors FactorsOf(const float* values, int count, const IntegerRange& numbers) {
  Factors result;
  const float farthest = numbers.low < 0.0f ? numbers.low : numbers.high;
  result.common = FloatToF16(Largest(values, count) / farthest);
  const float inverse = InverseOf(F16ToFloat(result.common));
  for (int i = 0; i < count; ++i) {
    result.factors[i] = static_cast<int8_t>(numbers.Nearest(values[i] * inverse));
  }
  return result;
}

// Sets the scales of a block of kMaxGroups groups, with one for each `part` (16 or 32) weights.
void SetFactors(const Factors& scales, const Factors& minimums, int part, BlockGroup* out) {
  const int halves = kBlockGroup / part;
  for (int g = 0; g < kMaxGroups; ++g) {
    out[g].scale = scales.common;
    out[g].minimum = minimums.common;
    for (int half = 0; half < 2; ++half) {
      const int at = halves == 2 ? 2 * g + half : g;
      out[g].scale_factors[half] = scales.factors[at];
      out[g].minimum_factors[half] = minimums.factors[at];
    }
  }
}

template <typename Numbers>
void QuantizeScaledParts(const float* x, int part, const Numbers& numbers, int zero,
                         const IntegerRange& allowed_factors, BlockGroup* out) {
  const int count = kMaxGroups * kBlockGroup / part;
  float scales[2 * kMaxGroups];
  for (int i = 0; i < count; ++i) {
    scales[i] = numbers.SearchScale(x + i * part, part);
  }
  const Factors factors = FactorsOf(scales, count, allowed_factors);
  for (int g = 0; g < kMaxGroups; ++g) out[g].zero = static_cast<uint8_t>(zero);
  for (int i = 0; i < count; ++i) {
    const int first = i * part;
    SetCodes(x + first, part, factors.ValueOf(i), numbers, zero,
             out[first / kBlockGroup].codes + first % kBlockGroup);
  }
  SetFactors(factors, {.common = 0, .factors = {}}, part, out);
}

void QuantizeLineParts(const float* x, int part, float most, const IntegerRange& allowed_factors,
                       BlockGroup* out) {
  const int count = kMaxGroups * kBlockGroup / part;
  float scales[2 * kMaxGroups];
  float minimums[2 * kMaxGroups];
  for (int i = 0; i < count; ++i) {
    const Line line = SearchLine(x + i * part, part, most, true);
    scales[i] = line.scale;
    minimums[i] = line.minimum;
  }
  const Factors scale_factors = FactorsOf(scales, count, allowed_factors);
  const Factors minimum_factors = FactorsOf(minimums, count, allowed_factors);
  for (int i = 0; i < count; ++i) {
    const int first = i * part;
    const Line line{scale_factors.ValueOf(i), minimum_factors.ValueOf(i)};
    SetLineCodes(x + first, part, line, most, out[first / kBlockGroup].codes + first % kBlockGroup);
  }
  SetFactors(scale_factors, minimum_factors, part, out);
}

constexpr IntegerRange kFourBits{0, 15};
constexpr IntegerRange kSixBits{0, 63};
constexpr IntegerRange kSixSignedBits{-32, 31};
constexpr IntegerRange kEightSignedBits{-128, 127};

// Quantises one block.   x: [the block's inputs]; groups: [the block's groups]
void QuantizeBlock(const float* x, DType dtype, BlockGroup* groups) {
  switch (dtype) {
    case DType::kQ8_0:
      return QuantizeQ8_0(x, groups);
    case DType::kQ4_0:
      return QuantizeScaled(x, IntegerRange{-8, 7}, 8, groups);
    case DType::kQ5_0:
      return QuantizeScaled(x, IntegerRange{-16, 15}, 16, groups);
    case DType::kIq4Nl:
      return QuantizeScaled(x, TableNumbers(), 0, groups);
    case DType::kQ4_1:
      return QuantizeLine(x, 15, groups);
    case DType::kQ5_1:
      return QuantizeLine(x, 31, groups);
    case DType::kQ2K:
      return QuantizeLineParts(x, kHalf, 3, kFourBits, groups);
    case DType::kQ4K:
      return QuantizeLineParts(x, kBlockGroup, 15, kSixBits, groups);
    case DType::kQ5K:
      return QuantizeLineParts(x, kBlockGroup, 31, kSixBits, groups);
    case DType::kQ3K:
      return QuantizeScaledParts(x, kHalf, IntegerRange{-4, 3}, 4, kSixSignedBits, groups);
    case DType::kQ6K:
      return QuantizeScaledParts(x, kHalf, IntegerRange{-32, 31}, 32, kEightSignedBits, groups);
    case DType::kIq4Xs:
      return QuantizeScaledParts(x, kBlockGroup, TableNumbers(), 0, kSixSignedBits, groups);
    default:
      TANDEM_CHECK(false);
  }
}

// Whether all weights are finite, which the searches require.
bool AllFinite(const float* x, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += x[i] * 0.0f;
  return sum == 0.0f;
}

}  // namespace

void QuantizeRow(const float* weights, int cols, DType dtype, std::byte* out) {
  const BlockShape shape = BlockShapeOf(dtype);
  TANDEM_CHECK(IsBlocks(dtype) && cols % kBlockGroup == 0);
  const int num_groups = shape.inputs / kBlockGroup;
  for (int first = 0; first < cols; first += shape.inputs, out += shape.bytes) {
    float block[kMaxGroups * kBlockGroup] = {};
    std::copy_n(weights + first, std::min(shape.inputs, cols - first), block);
    BlockGroup groups[kMaxGroups];
    if (AllFinite(block, shape.inputs)) {
      QuantizeBlock(block, dtype, groups);
    } else {
      for (BlockGroup& group : groups) group.scale = 0x7E00;  // NaN
    }
    WriteBlock({groups, static_cast<size_t>(num_groups)}, dtype, out);
  }
}

const std::byte* BlockRow(const ConstMatrixView& matrix, int row, DType dtype,
                          std::vector<std::byte>* storage) {
  const std::byte* const from =
      static_cast<const std::byte*>(matrix.data) + row * RowBytes(matrix.dtype, matrix.stride);
  if (matrix.dtype == dtype) return from;
  std::vector<float> weights(matrix.cols);
  WidenRow(from, matrix.dtype, matrix.cols, weights.data());
  storage->resize(RowBytes(dtype, matrix.cols));
  QuantizeRow(weights.data(), matrix.cols, dtype, storage->data());
  return storage->data();
}

std::vector<std::byte> QuantizeMatrix(const ConstMatrixView& matrix, DType dtype,
                                      ThreadPool* pool) {
  const size_t row_bytes = RowBytes(dtype, matrix.cols);
  std::vector<std::byte> blocks(row_bytes * matrix.rows);
  pool->Run([&](int thread) {
    const Share share = ShareOf(matrix.rows, pool->num_threads(), thread);
    std::vector<std::byte> row;
    for (int64_t r = share.begin; r < share.end; ++r) {
      const std::byte* const from = BlockRow(matrix, static_cast<int>(r), dtype, &row);
      std::memcpy(blocks.data() + r * row_bytes, from, row_bytes);
    }
  });
  return blocks;
}

}  // namespace tandem
