// Tests of quantisation: every bit of a block can be written, weights on a format's grid stay
// exact, errors are as small as the format's bits allow, and every instruction set finds the same
// blocks.
#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/process_limits.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

class EveryQuantization : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Quantize, EveryQuantization, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(EveryQuantization, WriteBlockInvertsReadBlockGroup) {
  const BlockShape shape = BlockShapeOf(GetParam());
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::byte> bytes(shape.bytes), written(shape.bytes, std::byte{0xA5});
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    std::vector<BlockGroup> groups;
    for (int g = 0; g < shape.inputs / kBlockGroup; ++g) {
      groups.push_back(ReadBlockGroup(bytes.data(), GetParam(), g));
    }
    WriteBlock(groups, GetParam(), written.data());
    ASSERT_EQ(written, bytes) << "round " << round;
  }
}

std::vector<float> Normal(int count, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> weights(count);
  for (float& weight : weights) weight = normal(random);
  return weights;
}

float AsF16(float x) { return F16ToFloat(FloatToF16(x)); }

std::vector<float> QuantizedAndBack(const std::vector<float>& weights, DType dtype) {
  const int cols = static_cast<int>(weights.size());
  std::vector<std::byte> blocks(RowBytes(dtype, cols));
  QuantizeRow(weights.data(), cols, dtype, blocks.data());
  std::vector<float> widened((cols + 255) / 256 * 256);
  for (int first = 0; first < cols; first += kBlockGroup) {
    const BlockGroup group = ReadBlockGroup(blocks.data(), dtype, first / kBlockGroup);
    for (int i = 0; i < kBlockGroup; ++i) {
      widened[first + i] =
          group.ScaleOf(i / 16) * static_cast<float>(group.NumberOf(i)) + group.MinimumOf(i / 16);
    }
  }
  widened.resize(cols);
  return widened;
}

double RelativeError(const std::vector<float>& weights, const std::vector<float>& quantized) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    error += std::pow(double{weights[i]} - quantized[i], 2);
    norm += std::pow(double{weights[i]}, 2);
  }
  return std::sqrt(error / norm);
}

// The norm of the error that llama.cpp's quantisers leave without an importance matrix, divided by
// the norm of the weights: ggml_quantize_chunk of its build 11549, on 1,048,576 normally
// distributed weights. For Q8_0 both use the same formula; the half percent allows for the smaller
// sample of 65,536 weights.
struct Bound {
  DType dtype;
  double reference;
};
constexpr Bound kBounds[] = {
    {DType::kQ8_0, 0.005354 * 1.005}, {DType::kQ4_0, 0.08600},  {DType::kQ4_1, 0.07826},
    {DType::kQ5_0, 0.04270},          {DType::kQ5_1, 0.03785},  {DType::kQ2K, 0.29670},
    {DType::kQ3K, 0.15098},           {DType::kQ4K, 0.07137},   {DType::kQ5K, 0.03613},
    {DType::kQ6K, 0.01778},           {DType::kIq4Nl, 0.07618}, {DType::kIq4Xs, 0.07678}};

TEST(QuantizeRow, ErrorIsAtMostTheReferences) {
  const std::vector<float> weights = Normal(1 << 16, 1);
  for (const Bound& bound : kBounds) {
    const double error = RelativeError(weights, QuantizedAndBack(weights, bound.dtype));
    EXPECT_LE(error, bound.reference) << NameOf(bound.dtype);
    EXPECT_GE(error, bound.reference / 2) << NameOf(bound.dtype) << ": too good to be true";
  }
}

// Weights that have been quantised before, as some published ones have, do not change.
TEST(QuantizeRow, KeepsWeightsOnTheGridExact) {
  std::mt19937 random(2);
  for (const auto& [dtype, most] : {std::pair(DType::kQ4_1, 15), std::pair(DType::kQ5_1, 31)}) {
    for (int round = 0; round < 200; ++round) {
      const float scale = AsF16(0.001f + 0.0001f * static_cast<float>(round));
      const float minimum = AsF16(-0.01f - 0.0001f * static_cast<float>(round));
      std::vector<float> weights(kBlockGroup);
      for (float& weight : weights) {
        weight = scale * static_cast<float>(random() % (most + 1)) + minimum;
      }
      weights[3] = minimum;
      weights[17] = scale * static_cast<float>(most) + minimum;
      ASSERT_EQ(QuantizedAndBack(weights, dtype), weights) << NameOf(dtype) << " " << round;
    }
  }
}

TEST_P(EveryQuantization, KeepsZeros) {
  const std::vector<float> zeros(256, 0.0f);
  EXPECT_EQ(QuantizedAndBack(zeros, GetParam()), zeros);
  const std::vector<float> tiny(256, 0x1p-110f);
  for (const float weight : QuantizedAndBack(tiny, GetParam())) EXPECT_LE(std::abs(weight), 1e-7f);
}

TEST_P(EveryQuantization, HandlesWeightsOfOneSign) {
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> weights = Normal(512, 3);
    for (float& weight : weights) weight = std::copysign(weight, sign);
    EXPECT_LE(RelativeError(weights, QuantizedAndBack(weights, GetParam())), 0.4);
  }
}

// A weight that is too large for an f16 scale makes its block infinite, so that the damage shows.
TEST_P(EveryQuantization, NonFiniteWeightMakesItsBlockNonFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
    std::vector<float> weights = Normal(512, 4);
    weights[300] = bad;
    const std::vector<float> quantized = QuantizedAndBack(weights, GetParam());
    EXPECT_FALSE(std::isfinite(quantized[300])) << bad;
    for (int i = 0; i < 256; ++i) ASSERT_TRUE(std::isfinite(quantized[i])) << bad << " at " << i;
  }
}

// A row that ends within a block is padded with zeros.
TEST_P(EveryQuantization, PadsTheLastBlockWithZeros) {
  std::vector<float> weights = Normal(256 + 96, 5);
  const std::vector<float> alone = QuantizedAndBack(weights, GetParam());
  weights.resize(512, 0.0f);
  std::vector<float> padded = QuantizedAndBack(weights, GetParam());
  padded.resize(alone.size());
  EXPECT_EQ(alone, padded);
}

TEST(SearchKernels, FindTheSameScalesOnEveryInstructionSet) {
  std::mt19937 random(6);
  const auto kernels = RunnableCpuKernels();
  for (int round = 0; round < 2000; ++round) {
    const int count = round % 2 == 0 ? 32 : 16;
    std::vector<float> x = Normal(32, 100 + round);
    if (round % 7 == 0) x[5] *= 30.0f;
    if (round % 11 == 0) std::fill(x.begin(), x.end(), x[0]);
    const float high = static_cast<float>((4 << round % 4) - 1);
    const bool is_negative = round % 3 == 0;
    float scale = 0.0f, minimum = 0.0f;
    kernels[0]->search_line(x.data(), count, high, is_negative, &scale, &minimum);
    EXPECT_TRUE(!is_negative || minimum <= 0.0f);
    const float symmetric = kernels[0]->search_scale(x.data(), count, -high - 1.0f, high);
    for (const CpuKernels* other : kernels) {
      float other_scale = 0.0f, other_minimum = 0.0f;
      other->search_line(x.data(), count, high, is_negative, &other_scale, &other_minimum);
      ASSERT_EQ(other_scale, scale) << other->name << " " << round;
      ASSERT_EQ(other_minimum, minimum) << other->name << " " << round;
      ASSERT_EQ(other->search_scale(x.data(), count, -high - 1.0f, high), symmetric)
          << other->name << " " << round;
    }
  }
}

TEST(QuantizeMatrix, QuantizesEachRowAsQuantizeRowDoes) {
  std::mt19937 random(7);
  const TestWeight weight(TestMatrix::Random(37, 160, random), DType::kBF16);
  ThreadPool pool(3);
  const std::vector<std::byte> blocks = QuantizeMatrix(weight.view(), DType::kQ5_0, &pool);
  const size_t row_bytes = RowBytes(DType::kQ5_0, 160);
  ASSERT_EQ(blocks.size(), 37 * row_bytes);
  for (int r = 0; r < 37; ++r) {
    std::vector<std::byte> row(row_bytes);
    QuantizeRow(weight.values().row(r), 160, DType::kQ5_0, row.data());
    ASSERT_EQ(std::memcmp(row.data(), blocks.data() + r * row_bytes, row_bytes), 0) << r;
  }
}

}  // namespace
}  // namespace tandem
