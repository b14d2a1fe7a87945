// Tests of products with weights of block formats: they match the definition and are near the exact
// product, and the bits of a row depend on nothing else in the pass.
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/block_testing.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"
#include "kernels/product_testing.h"

namespace tandem {
namespace {

// The chain that docs/numerics.md defines.
float DefinedProduct(const std::byte* row, DType dtype, const float* x, int cols, bool fused) {
  float sum = 0.0f;
  for (int g = 0; g < cols / kBlockGroup; ++g) {
    sum = AddGroup(ReadBlockGroup(row, dtype, g), dtype, DefinedActivations(x + g * kBlockGroup),
                   fused, sum);
  }
  return sum;
}

std::vector<TestBackend> CpuBackends() {
  std::vector<TestBackend> backends;
  for (const std::string& isa : CpuIsas()) {
    backends.push_back(MakeTestBackend(isa, CpuCompute::kAuto, 2));
  }
  return backends;
}

std::vector<int> InputsOf(DType dtype) {
  return BlockShapeOf(dtype).inputs == 256 ? std::vector<int>{256, 768}
                                           : std::vector<int>{32, 64, 128, 160, 576};
}

class BlockProduct : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, BlockProduct, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(BlockProduct, MatchesTheDefinitionBitForBit) {
  std::mt19937 random(1);
  for (const int inputs : InputsOf(GetParam())) {
    for (const int outputs : {1, 64, 65, 150}) {
      const RandomBlocks weight(GetParam(), outputs, inputs, random);
      const TestMatrix x = TestMatrix::Random(9, inputs, random);
      for (TestBackend& test : CpuBackends()) {
        const PackedWeight packed = PackOne(*test.backend, weight);
        EXPECT_EQ(packed.dtype, GetParam());
        const TestMatrix out = Multiply(*test.backend, x, packed);
        const bool fused = test.label.find("portable") == std::string::npos;
        for (int c = 0; c < outputs; ++c) {
          for (int r = 0; r < x.rows(); ++r) {
            ASSERT_EQ(out.at(r, c),
                      DefinedProduct(weight.row(c), GetParam(), x.row(r), inputs, fused))
                << test.label << " K " << inputs << " at " << r << ", " << c;
          }
        }
      }
    }
  }
}

// The largest sums of a group: all codes are at an end of their range, and so are the activations.
TEST_P(BlockProduct, TheLargestSumsFit) {
  std::mt19937 random(7);
  TestMatrix x(4, 256);
  for (int i = 0; i < 256; ++i) {
    x.at(0, i) = 1.0f;
    x.at(1, i) = -1.0f;
    x.at(2, i) = i % 2 == 0 ? 1.0f : -1.0f;
    x.at(3, i) = i % 4 < 2 ? 1.0f : -1.0f;
  }
  for (const std::byte fill :
       {std::byte{0x00}, std::byte{0x7F}, std::byte{0x80}, std::byte{0xFF}}) {
    const RandomBlocks weight(GetParam(), 64, 256, random, fill);
    for (TestBackend& test : CpuBackends()) {
      const TestMatrix out = Multiply(*test.backend, x, PackOne(*test.backend, weight));
      const bool fused = test.label.find("portable") == std::string::npos;
      for (int c = 0; c < 64; ++c) {
        for (int r = 0; r < x.rows(); ++r) {
          ASSERT_EQ(out.at(r, c), DefinedProduct(weight.row(c), GetParam(), x.row(r), 256, fused))
              << test.label << " at " << r << ", " << c;
        }
      }
    }
  }
}

// The error of an activation is at most half its scale. All other roundings are far smaller.
TEST_P(BlockProduct, IsNearTheExactProduct) {
  std::mt19937 random(2);
  TestBackend test = std::move(CpuBackends().front());
  const RandomBlocks weight(GetParam(), 80, 768, random);
  const TestMatrix x = TestMatrix::Random(3, 768, random);
  const std::vector<float> bias = RandomBias(80, random);
  const TestMatrix out = Multiply(*test.backend, x, PackOne(*test.backend, weight, bias.data()));
  for (int c = 0; c < 80; ++c) {
    const std::vector<float> w = weight.Widened(c);
    for (int r = 0; r < 3; ++r) {
      double exact = bias[c];
      double allowed = 0.0;
      for (int g = 0; g < 768; g += kBlockGroup) {
        const double off = DefinedActivations(x.row(r) + g).scale * 0.5;
        for (int k = g; k < g + kBlockGroup; ++k) {
          exact += double{w[k]} * x.at(r, k);
          allowed += std::abs(w[k]) * off;
        }
      }
      ASSERT_NEAR(out.at(r, c), exact, allowed * (1 + 1e-4));
      // In fact it is far nearer, because the errors have both signs.
      ASSERT_NEAR(out.at(r, c), exact, allowed * 0.25);
    }
  }
}

TEST_P(BlockProduct, RowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(3);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks weight(GetParam(), 150, 512, random);
    const PackedWeight packed = PackOne(*test.backend, weight);
    std::vector<int> counts = Iota(18);
    counts.insert(counts.end(), {32, 60});
    SCOPED_TRACE(test.label);
    ExpectRowsAsAlone(
        TestMatrix::Random(60, 512, random), counts, random,
        [&](const TestMatrix& rows) { return Multiply(*test.backend, rows, packed); });
  }
}

// There are more rows than a tile holds, and so few panels that threads share rows too.
TEST_P(BlockProduct, RowsHaveTheSameBitsForEveryNumberOfThreads) {
  std::mt19937 random(4);
  const TestMatrix x = TestMatrix::Random(600, 256, random);
  const RandomBlocks weight(GetParam(), 130, 256, random);
  TestMatrix expected(600, 130);
  for (const int threads : {1, 2, 7}) {
    TestBackend test = MakeTestBackend(CpuIsas().front(), CpuCompute::kAuto, threads);
    const TestMatrix out = Multiply(*test.backend, x, PackOne(*test.backend, weight));
    if (threads == 1) expected = out;
    ASSERT_TRUE(out.SameBits(expected)) << threads;
  }
}

TEST_P(BlockProduct, NonFiniteActivationsStayInTheirRow) {
  std::mt19937 random(5);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks weight(GetParam(), 80, 256, random);
    SCOPED_TRACE(test.label);
    ExpectNonFiniteStaysInItsRow(*test.backend, TestMatrix::Random(9, 256, random),
                                 PackOne(*test.backend, weight));
  }
}

TEST_P(BlockProduct, GatedProductMatchesGateAndUpAlone) {
  std::mt19937 random(6);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks gate(GetParam(), 100, 256, random);
    const RandomBlocks up(GetParam(), 100, 256, random);
    SCOPED_TRACE(test.label);
    ExpectGatedProduct(*test.backend, TestMatrix::Random(8, 256, random), {gate.view()},
                       {up.view()}, 0x1p-121);
  }
}

}  // namespace
}  // namespace tandem
