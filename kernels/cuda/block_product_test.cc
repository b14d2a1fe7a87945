// Products with weights of block formats on a device: that they match their definition, and that a
// row's bits do not depend on the other rows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/launch_shapes.h"

namespace tandem::cuda {
namespace {

// Adds eight chains in order. Each chain consists of whole units of four groups.
float DefinedProduct(const RandomBlocks& weight, int output, const float* x) {
  const int groups = weight.cols() / kBlockGroup;
  float total = 0.0f;
  for (int chain = 0; chain < kChains; ++chain) {
    float sum = 0.0f;
    const int end = ChainBegin(chain + 1, groups);
    for (int g = ChainBegin(chain, groups); g < end; ++g) {
      sum = AddGroup(ReadBlockGroup(weight.row(output), weight.dtype(), g), weight.dtype(),
                     DefinedActivations(x + g * kBlockGroup), /*fused=*/true, sum);
    }
    total += sum;
  }
  return total;
}

class BlockProduct : public CudaTest, public testing::WithParamInterface<DType> {
 protected:
  enum class Kind { kStore, kAdd, kSwiGlu };

  DType dtype() const { return GetParam(); }
  // `sum` gives the shape of the result, and the values that kAdd adds to.
  TestMatrix Multiply(const TestMatrix& x, const PackedWeight& weight, TestMatrix sum,
                      Kind kind = Kind::kStore) {
    DeviceMatrix in(backend(), x), out(backend(), std::move(sum));
    if (kind == Kind::kStore) backend().MatMul(in.view(), weight, out.view());
    if (kind == Kind::kAdd) backend().MatMulAdd(in.view(), weight, out.view());
    if (kind == Kind::kSwiGlu)
      backend().MatMulGated(in.view(), weight, Activation::kSilu, out.view());
    return out.Get();
  }
  static constexpr float kEpsilon = 1e-5f;
  TestMatrix MultiplyNormed(const TestMatrix& x, const TestMatrix& norm, const PackedWeight& weight,
                            int outputs) {
    DeviceMatrix in(backend(), x), normed(backend(), TestMatrix(x.rows(), x.cols()));
    DeviceMatrix norm_weight(backend(), norm), out(backend(), TestMatrix(x.rows(), outputs));
    const NormedRows rows{
        .x = in.view(), .weight = norm_weight.data(), .epsilon = kEpsilon, .normed = normed.view()};
    backend().MatMul(rows, weight, out.view());
    return out.Get();
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, BlockProduct, testing::ValuesIn(kAllBlockDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Shapes with one piece that is not full, with several chains, and with long chains; with few rows
// and, on the host's device, many. K formats have widths that are not a multiple of 256 if floats
// were quantised.
TEST_P(BlockProduct, MatchesItsDefinition) {
  std::mt19937 random(1);
  for (const auto& [inputs, outputs, rows] :
       {std::tuple{32, 1, 1}, {96, 17, 9}, {1440, 19, 3}, {800, 40, 20}, {288, 33, 70}}) {
    const RandomBlocks weight(dtype(), outputs, inputs, random);
    const std::vector<float> bias = RandomBias(outputs, random);
    TestMatrix x = TestMatrix::Random(rows, weight.cols(), random);
    std::fill_n(x.row(0), kBlockGroup, 0.0f);
    const TestMatrix out =
        Multiply(x, PackBlocks(backend(), weight, bias.data()), TestMatrix(rows, outputs));
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < outputs; ++c) {
        ASSERT_EQ(out.at(r, c), DefinedProduct(weight, c, x.row(r)) + bias[c])
            << "K " << weight.cols() << " N " << outputs << " at " << r << ", " << c << " of "
            << rows;
      }
    }
  }
}

// Bits per weight that decoding reads: numbers, scales and the f16 that scales share.
TEST_P(BlockProduct, PackedSizeMatchesTheFormat) {
  const auto bits = [&]() -> double {
    switch (dtype()) {
      case DType::kQ8_0:
        return 8.5;
      case DType::kQ4_0:
      case DType::kIq4Nl:
        return 4.5;
      case DType::kQ4_1:
        return 5.0;
      case DType::kQ5_0:
        return 6.5;
      case DType::kQ5_1:
        return 7.0;
      case DType::kQ2K:
        return 5.25;
      case DType::kQ3K:
        return 4.625;
      case DType::kQ4K:
        return 4.75;
      case DType::kQ5K:
        return 6.75;
      case DType::kQ6K:
        return 6.625;
      case DType::kIq4Xs:
        return 4.375;
      default:
        return 0.0;
    }
  };
  std::mt19937 random(2);
  const PackedWeight packed = PackBlocks(backend(), RandomBlocks(dtype(), 48, 512, random));
  EXPECT_EQ(static_cast<double>(packed.bytes_read) * 8, 48 * 512 * bits());
  EXPECT_EQ(packed.data.size_bytes(), packed.bytes_read);
}

TEST_P(BlockProduct, RowsHaveTheSameBitsAsAlone) {
  std::mt19937 random(3);
  constexpr int kRows = 66, kOutputs = 33;
  const RandomBlocks weight(dtype(), kOutputs, 288, random);
  const PackedWeight packed = PackBlocks(backend(), weight);
  const TestMatrix norm = TestMatrix::Random(1, weight.cols(), random);
  TestMatrix x = TestMatrix::Random(kRows, weight.cols(), random);
  x.at(3, weight.cols() / 2) = NAN;
  for (const bool is_normed : {false, true}) {
    const auto multiply = [&](const TestMatrix& rows) {
      return is_normed ? MultiplyNormed(rows, norm, packed, kOutputs)
                       : Multiply(rows, packed, TestMatrix(rows.rows(), kOutputs));
    };
    const TestMatrix all = multiply(x);
    for (const int r : {0, 3, 4, 7, 8, 17, 32, 64, 65}) {
      const TestMatrix one = multiply(x.Rows({r}));
      EXPECT_EQ(std::isnan(one.at(0, 0)), r == 3);
      EXPECT_TRUE(all.SameBits(r, one, 0)) << "row " << r;
    }
    for (const int count : {2, 9, 17, 33}) {
      std::vector<int> order = Iota(kRows);
      std::shuffle(order.begin(), order.end(), random);
      order.resize(count);
      EXPECT_TRUE(multiply(x.Rows(order)).SameBits(all.Rows(order))) << count;
    }
  }
}

TEST_P(BlockProduct, NonFiniteValuesStayInTheirRow) {
  std::mt19937 random(4);
  const RandomBlocks weight(dtype(), 20, 96, random);
  const PackedWeight packed = PackBlocks(backend(), weight);
  TestMatrix x = TestMatrix::Random(12, weight.cols(), random);
  const TestMatrix clean = Multiply(x, packed, TestMatrix(12, 20));
  x.at(3, 50) = NAN;
  x.at(9, 95) = -INFINITY;
  const TestMatrix out = Multiply(x, packed, TestMatrix(12, 20));
  for (int r = 0; r < 12; ++r) {
    if (r == 3 || r == 9) {
      for (int c = 0; c < 20; ++c) EXPECT_TRUE(std::isnan(out.at(r, c)));
    } else {
      EXPECT_TRUE(out.SameBits(r, clean, r));
    }
  }
}

TEST_P(BlockProduct, PartsAndSumsHaveTheSameProducts) {
  std::mt19937 random(5);
  const RandomBlocks first(dtype(), 11, 96, random);
  const RandomBlocks second(dtype(), 22, first.cols(), random);
  const std::vector<float> bias = RandomBias(22, random);
  const TestMatrix x = TestMatrix::Random(5, first.cols(), random);
  const TestMatrix sum = TestMatrix::Random(5, 33, random);
  auto packed =
      backend().Pack({{first.view()}, {second.view(), bias.data()}}, PartOrder::kConcatenated);
  ASSERT_TRUE(packed.ok());
  const TestMatrix out = Multiply(x, *packed, TestMatrix(5, 33));
  const TestMatrix added = Multiply(x, *packed, sum, Kind::kAdd);
  const TestMatrix a = Multiply(x, PackBlocks(backend(), first), TestMatrix(5, 11));
  const TestMatrix b = Multiply(x, PackBlocks(backend(), second, bias.data()), TestMatrix(5, 22));
  for (int r = 0; r < 5; ++r) {
    for (int c = 0; c < 33; ++c) {
      ASSERT_EQ(out.at(r, c), c < 11 ? a.at(r, c) : b.at(r, c - 11));
      ASSERT_EQ(added.at(r, c), sum.at(r, c) + out.at(r, c));
    }
  }
}

// Same as for weights of floats (product_test.cc), with few and many rows.
TEST_P(BlockProduct, GatedProductMatchesThoseOfGateAndUp) {
  std::mt19937 random(6);
  const RandomBlocks gate(dtype(), 13, 96, random);
  const RandomBlocks up(dtype(), 13, gate.cols(), random);
  const std::vector<float> bias = RandomBias(13, random);
  auto packed = backend().Pack({{gate.view(), bias.data()}, {up.view()}}, PartOrder::kGateAndUp);
  ASSERT_TRUE(packed.ok());
  for (const int rows : {3, 70}) {
    const TestMatrix x = TestMatrix::Random(rows, gate.cols(), random);
    const TestMatrix out = Multiply(x, *packed, TestMatrix(rows, 13), Kind::kSwiGlu);
    const TestMatrix g =
        Multiply(x, PackBlocks(backend(), gate, bias.data()), TestMatrix(rows, 13));
    const TestMatrix u = Multiply(x, PackBlocks(backend(), up), TestMatrix(rows, 13));
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < 13; ++c) {
        const double value = g.at(r, c);
        const double expected = value / (1.0 + std::exp(-value)) * u.at(r, c);
        // For gates below -88 the sigmoid is 0 in f32.
        ASSERT_NEAR(
            out.at(r, c), expected,
            std::abs(expected) * 8 * 0x1p-24 + 0x1p-119 * (1 + std::abs(double{u.at(r, c)})));
      }
    }
  }
}

// Rows are multiplied with the norm's weights and quantised, and sums are multiplied with the
// inverse root. Its error is half that of the sum of squares, plus three roundings.
TEST_P(BlockProduct, NormedProductIsScaledByTheInverseRoot) {
  std::mt19937 random(7);
  constexpr int kOutputs = 9;
  const RandomBlocks weight(dtype(), kOutputs, 288, random);
  const PackedWeight packed = PackBlocks(backend(), weight);
  const TestMatrix norm = TestMatrix::Random(1, weight.cols(), random);
  for (const int rows : {2, 11}) {
    const TestMatrix x = TestMatrix::Random(rows, weight.cols(), random, 3.0f);
    const TestMatrix out = MultiplyNormed(x, norm, packed, kOutputs);
    for (int r = 0; r < rows; ++r) {
      double squares = 0.0;
      std::vector<float> weighted(weight.cols());
      for (int k = 0; k < weight.cols(); ++k) {
        squares += double{x.at(r, k)} * x.at(r, k);
        weighted[k] = x.at(r, k) * norm.at(0, k);
      }
      const double factor = 1.0 / std::sqrt(squares / weight.cols() + double{kEpsilon});
      for (int c = 0; c < kOutputs; ++c) {
        const double expected = DefinedProduct(weight, c, weighted.data()) * factor;
        ASSERT_NEAR(out.at(r, c), expected,
                    std::abs(expected) * (weight.cols() / 2.0 + 5) * 0x1p-23);
      }
    }
  }
}

// Weights of other types become the same blocks as on the host.
TEST_P(BlockProduct, QuantisesOtherWeightsAsTheHostDoes) {
  std::mt19937 random(9);
  const TestMatrix values = TestMatrix::Random(19, 96, random);
  const TestMatrix x = TestMatrix::Random(3, 96, random);
  for (const DType given : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    const TestWeight other(values, given);
    auto packed = backend().Pack({{other.view()}}, PartOrder::kConcatenated, dtype());
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->dtype, dtype());
    const PackedWeight blocks =
        PackOne(backend(),
                given == dtype() ? TestWeight(values, given) : TestWeight(other.values(), dtype()));
    EXPECT_TRUE(
        Multiply(x, *packed, TestMatrix(3, 19)).SameBits(Multiply(x, blocks, TestMatrix(3, 19))))
        << NameOf(given);
  }
}

// Enough blocks that every device uses the kernel for many rows, and for the last 32 rows alone the
// kernel for few rows.
class BlockProductOfManyRows : public BlockProduct {};
INSTANTIATE_TEST_SUITE_P(Formats, BlockProductOfManyRows, testing::Values(DType::kQ4_0),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(BlockProductOfManyRows, HasTheSameBitsAsFewRowsOnAnyDevice) {
  std::mt19937 random(8);
  constexpr int kRows = 1024, kOutputs = 2112;
  const RandomBlocks weight(dtype(), kOutputs, 32, random);
  const PackedWeight packed = PackBlocks(backend(), weight);
  const TestMatrix x = TestMatrix::Random(kRows, 32, random);
  const TestMatrix out = Multiply(x, packed, TestMatrix(kRows, kOutputs));
  std::vector<int> last = Iota(32);
  for (int& row : last) row += kRows - 32;
  const TestMatrix few = Multiply(x.Rows(last), packed, TestMatrix(32, kOutputs));
  EXPECT_TRUE(few.SameBits(out.Rows(last)));
}

}  // namespace
}  // namespace tandem::cuda
