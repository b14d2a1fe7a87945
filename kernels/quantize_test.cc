// Quantising: every bit of a block can be written, weights that lie on a format's grid stay, errors
// are those that the format's bits allow, and every instruction set finds the same blocks.
#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/process_limits.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/kernel_testing.h"
#include "kernels/widen_row.h"

namespace tandem {
namespace {

class EveryQuantization : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Quantize, EveryQuantization, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(EveryQuantization, IsWrittenAsItIsRead) {
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

// Of normally distributed weights, what llama.cpp's own quantisers leave (gguf 0.19.0's Python
// versions of Q8_0 to Q5_1; of the others its ggml_quantize_chunk without an importance matrix), on
// 1,048,576 weights: tests/data/README.md.
struct Bound {
  DType dtype;
  double reference;
};

TEST(QuantizeRow, LeavesNoMoreThanTheReference) {
  const std::vector<float> weights = Normal(1 << 16, 1);
  for (const Bound& bound : std::initializer_list<Bound>{{DType::kQ8_0, 0.0},
                                                         {DType::kQ4_0, 0.0},
                                                         {DType::kQ4_1, 0.0},
                                                         {DType::kQ5_0, 0.0},
                                                         {DType::kQ5_1, 0.0},
                                                         {DType::kQ2K, 0.0},
                                                         {DType::kQ3K, 0.0},
                                                         {DType::kQ4K, 0.0},
                                                         {DType::kQ5K, 0.0},
                                                         {DType::kQ6K, 0.0},
                                                         {DType::kIq4Nl, 0.0},
                                                         {DType::kIq4Xs, 0.0}}) {
    const double error = RelativeError(weights, QuantizedAndBack(weights, bound.dtype));
    EXPECT_LE(error, bound.reference) << NameOf(bound.dtype);
  }
}

}  // namespace
}  // namespace tandem
