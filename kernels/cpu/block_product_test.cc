// Tests of products with weights of block formats: they match the definition and are near the exact
// product, and the bits of a row depend on nothing else in the pass.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/block_testing.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"

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
        const PackedWeight packed = PackBlocks(*test.backend, weight);
        EXPECT_EQ(packed.dtype, GetParam());
        TestMatrix out(9, outputs);
        test.backend->MatMul(x.view(), packed, out.view());
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

// The error of an activation is at most half its scale. All other roundings are far smaller.
TEST_P(BlockProduct, IsNearTheExactProduct) {
  std::mt19937 random(2);
  TestBackend test = std::move(CpuBackends().front());
  const RandomBlocks weight(GetParam(), 80, 768, random);
  const TestMatrix x = TestMatrix::Random(3, 768, random);
  const std::vector<float> bias = RandomBias(80, random);
  TestMatrix out(3, 80);
  test.backend->MatMul(x.view(), PackBlocks(*test.backend, weight, bias.data()), out.view());
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
    const PackedWeight packed = PackBlocks(*test.backend, weight);
    const TestMatrix x = TestMatrix::Random(60, 512, random);
    TestMatrix alone(60, 150);
    for (int r = 0; r < 60; ++r) {
      TestMatrix out(1, 150);
      test.backend->MatMul(x.Rows({r}).view(), packed, out.view());
      std::copy_n(out.row(0), 150, alone.row(r));
    }
    std::vector<int> counts = Iota(18);
    counts.insert(counts.end(), {32, 60});
    for (const int count : counts) {
      std::vector<int> order = Iota(60);
      std::shuffle(order.begin(), order.end(), random);
      order.resize(count);
      TestMatrix out(count, 150);
      test.backend->MatMul(x.Rows(order).view(), packed, out.view());
      for (int r = 0; r < count; ++r) {
        ASSERT_TRUE(out.SameBits(r, alone, order[r]))
            << test.label << " row " << r << " of " << count;
      }
    }
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
    TestMatrix out(600, 130);
    test.backend->MatMul(x.view(), PackBlocks(*test.backend, weight), out.view());
    if (threads == 1) expected = out;
    ASSERT_TRUE(out.SameBits(expected)) << threads;
  }
}

TEST_P(BlockProduct, NonFiniteActivationsStayInTheirRow) {
  std::mt19937 random(5);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks weight(GetParam(), 80, 256, random);
    const PackedWeight packed = PackBlocks(*test.backend, weight);
    TestMatrix x = TestMatrix::Random(9, 256, random);
    TestMatrix clean(9, 80), out(9, 80);
    test.backend->MatMul(x.view(), packed, clean.view());
    x.at(4, 17) = NAN;
    x.at(7, 150) = -INFINITY;
    test.backend->MatMul(x.view(), packed, out.view());
    for (int r = 0; r < 9; ++r) {
      for (int c = 0; c < 80; ++c) {
        if (r == 4 || r == 7) {
          ASSERT_TRUE(std::isnan(out.at(r, c))) << test.label << " row " << r;
        } else {
          ASSERT_EQ(out.at(r, c), clean.at(r, c)) << test.label << " row " << r;
        }
      }
    }
  }
}

TEST_P(BlockProduct, GatedProductMatchesGateAndUpAlone) {
  std::mt19937 random(6);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks gate(GetParam(), 100, 256, random);
    const RandomBlocks up(GetParam(), 100, 256, random);
    auto packed = test.backend->Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
    ASSERT_TRUE(packed.ok());
    const TestMatrix x = TestMatrix::Random(8, 256, random);
    TestMatrix out(8, 100), gates(8, 100), ups(8, 100);
    test.backend->MatMulGated(x.view(), *packed, Activation::kSilu, out.view());
    test.backend->MatMul(x.view(), PackBlocks(*test.backend, gate), gates.view());
    test.backend->MatMul(x.view(), PackBlocks(*test.backend, up), ups.view());
    for (int r = 0; r < 8; ++r) {
      for (int c = 0; c < 100; ++c) {
        const double g = gates.at(r, c), u = ups.at(r, c);
        const double expected = g / (1.0 + std::exp(-g)) * u;
        // The tolerance of product_test.cc.
        ASSERT_NEAR(out.at(r, c), expected,
                    std::abs(expected) * 0x1p-21 + 0x1p-121 * (1 + std::abs(u)));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
