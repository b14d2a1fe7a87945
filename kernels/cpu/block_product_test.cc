// Products with weights of block formats: as defined, near the exact product, and the same bits for
// a row whatever surrounds it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"
#include "kernels/widen_row.h"

namespace tandem {
namespace {

// Where a block's f16 numbers lie.
std::vector<int> F16PlacesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
      return {0, 2};
    case DType::kQ2K:
      return {80, 82};
    case DType::kQ3K:
      return {108};
    case DType::kQ6K:
      return {208};
    default:
      return {0};
  }
}

// Rows of blocks of random bytes, with scales of about .02.
class RandomBlocks {
 public:
  RandomBlocks(DType dtype, int rows, int cols, std::mt19937& random)
      : dtype_(dtype), rows_(rows), cols_(cols), bytes_(rows * RowBytes(dtype, cols)) {
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    const int block_bytes = BlockShapeOf(dtype).bytes;
    std::normal_distribution<float> scale(0.0f, 0.02f);
    for (size_t block = 0; block < bytes_.size(); block += block_bytes) {
      for (const int place : F16PlacesOf(dtype)) {
        const uint16_t bits = FloatToF16(scale(random));
        std::memcpy(bytes_.data() + block + place, &bits, sizeof(bits));
      }
    }
  }
  const std::byte* row(int r) const { return bytes_.data() + r * RowBytes(dtype_, cols_); }
  ConstMatrixView view() const { return {bytes_.data(), dtype_, rows_, cols_, cols_}; }
  std::vector<float> Widened(int r) const {
    std::vector<float> weights(cols_);
    WidenRow(row(r), dtype_, cols_, weights.data());
    return weights;
  }

 private:
  DType dtype_;
  int rows_;
  int cols_;
  std::vector<std::byte> bytes_;
};

// 32 activations as the contract has them.
struct DefinedActivations {
  int values[kBlockGroup] = {};
  float scale = 0.0f;

  explicit DefinedActivations(const float* x) {
    float largest = 0.0f;
    for (int i = 0; i < kBlockGroup; ++i) largest = std::max(largest, std::abs(x[i]));
    const float inverse = largest == 0.0f ? 0.0f : 127.0f / largest;
    scale = largest / 127.0f;
    for (int i = 0; i < kBlockGroup; ++i) {
      values[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
    }
  }
};

bool HasHalves(DType dtype) {
  return dtype == DType::kQ2K || dtype == DType::kQ3K || dtype == DType::kQ6K;
}
bool HasMinimums(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2K ||
         dtype == DType::kQ4K || dtype == DType::kQ5K;
}

// The chain that docs/numerics.md defines.
float DefinedProduct(const std::byte* row, DType dtype, const float* x, int cols, bool fused) {
  const auto join = [&](float a, float b, float sum) {
    return fused ? std::fma(a, b, sum) : a * b + sum;
  };
  float sum = 0.0f;
  const int part = HasHalves(dtype) ? kBlockGroup / 2 : kBlockGroup;
  for (int g = 0; g < cols / kBlockGroup; ++g) {
    const BlockGroup weights = ReadBlockGroup(row, dtype, g);
    const DefinedActivations activations(x + g * kBlockGroup);
    for (int first = 0; first < kBlockGroup; first += part) {
      int whole = 0;
      int of_row = 0;
      for (int i = first; i < first + part; ++i) {
        whole += weights.NumberOf(i) * activations.values[i];
        of_row += activations.values[i];
      }
      const int half = first / (kBlockGroup / 2);
      sum = join(static_cast<float>(whole), weights.ScaleOf(half) * activations.scale, sum);
      if (HasMinimums(dtype)) {
        sum = join(weights.MinimumOf(half), activations.scale * static_cast<float>(of_row), sum);
      }
    }
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

PackedWeight PackBlocks(Backend& backend, const RandomBlocks& weight, const float* bias = nullptr) {
  auto packed = backend.Pack({{weight.view(), bias}}, PartOrder::kConcatenated);
  TANDEM_CHECK(packed.ok());
  return *std::move(packed);
}

std::vector<int> InputsOf(DType dtype) {
  return BlockShapeOf(dtype).inputs == 256 ? std::vector<int>{256, 768}
                                           : std::vector<int>{32, 64, 128, 160, 576};
}

class BlockProduct : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, BlockProduct, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(BlockProduct, IsWhatIsDefinedToTheBit) {
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

// An activation is off by at most half its scale; what is rounded besides is far smaller.
TEST_P(BlockProduct, IsNearTheExactOne) {
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
      // And far nearer than it need be: errors are as often up as down.
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

// More rows than a tile holds, and so few panels that threads share rows too.
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

TEST_P(BlockProduct, WhatIsNotFiniteStaysInItsRow) {
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

TEST_P(BlockProduct, OfGateAndUpIsThatOfEach) {
  std::mt19937 random(6);
  for (TestBackend& test : CpuBackends()) {
    const RandomBlocks gate(GetParam(), 100, 256, random);
    const RandomBlocks up(GetParam(), 100, 256, random);
    auto packed = test.backend->Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
    ASSERT_TRUE(packed.ok());
    const TestMatrix x = TestMatrix::Random(8, 256, random);
    TestMatrix out(8, 100), gates(8, 100), ups(8, 100);
    test.backend->MatMulSwiGlu(x.view(), *packed, out.view());
    test.backend->MatMul(x.view(), PackBlocks(*test.backend, gate), gates.view());
    test.backend->MatMul(x.view(), PackBlocks(*test.backend, up), ups.view());
    for (int r = 0; r < 8; ++r) {
      for (int c = 0; c < 100; ++c) {
        const double g = gates.at(r, c), u = ups.at(r, c);
        const double expected = g / (1.0 + std::exp(-g)) * u;
        // As in product_test.cc.
        ASSERT_NEAR(out.at(r, c), expected,
                    std::abs(expected) * 0x1p-21 + 0x1p-121 * (1 + std::abs(u)));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
