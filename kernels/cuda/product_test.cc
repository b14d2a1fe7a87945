// Products on a device: their results, and that a row's bits do not depend on the other rows.
#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

// The product of x and the weight's values in double, and the tolerance of f32.
//
// A chain of K sums errs by at most K * eps * sum |x w| to first order. eps is half a unit in the
// last place, or a whole one in tensor cores, which truncate sums instead of rounding them. Adding
// the chains of block formats takes 8 more sums. Twice that covers the higher orders, the bias and
// the epilogue.
struct Expected {
  double value = 0.0;
  double tolerance = 0.0;
};
Expected Dot(const float* x, const float* w, int inputs, bool rounds_to_bf16, float bias) {
  const ExactDot dot = DotInDouble(x, w, inputs, rounds_to_bf16, bias);
  return {.value = dot.value, .tolerance = 2.0 * (inputs + 10) * 0x1p-23 * dot.magnitude};
}

class Product : public CudaTest {
 protected:
  enum class Kind { kStore, kAdd, kSwiGlu, kGeGlu };
  // `sum` gives the shape of the result, and the values that kAdd adds to.
  TestMatrix Multiply(const TestMatrix& x, const PackedWeight& weight, TestMatrix sum,
                      Kind kind = Kind::kStore) {
    DeviceMatrix in(backend(), x), out(backend(), std::move(sum));
    switch (kind) {
      case Kind::kStore:
        backend().MatMul(in.view(), weight, out.view());
        break;
      case Kind::kAdd:
        backend().MatMulAdd(in.view(), weight, out.view());
        break;
      case Kind::kSwiGlu:
        backend().MatMulGated(in.view(), weight, Activation::kSilu, out.view());
        break;
      case Kind::kGeGlu:
        backend().MatMulGated(in.view(), weight, Activation::kGeluTanh, out.view());
    }
    return out.Get();
  }
};

TEST_F(Product, MatchesDoublePrecisionForEveryShape) {
  std::mt19937 random(1);
  for (const DType dtype : kAllDTypes) {
    for (const int inputs : {1, 2, 7, 31, 32, 33, 130, 704}) {
      for (const int outputs : {1, 8, 15, 16, 17, 40}) {
        for (const int rows : {1, 5, 12, 20, 40}) {
          if (rows > 5 && inputs != 130) continue;
          const TestWeight weight(TestMatrix::Random(outputs, inputs, random), dtype);
          const std::vector<float> bias = RandomBias(outputs, random);
          const TestMatrix x = TestMatrix::Random(rows, inputs, random);
          const TestMatrix out =
              Multiply(x, PackOne(backend(), weight, bias.data()), TestMatrix(rows, outputs));
          for (int r = 0; r < rows; ++r) {
            for (int c = 0; c < outputs; ++c) {
              const Expected expected =
                  Dot(x.row(r), weight.values().row(c), inputs, dtype == DType::kBF16, bias[c]);
              ASSERT_NEAR(out.at(r, c), expected.value, expected.tolerance)
                  << NameOf(dtype) << " K " << inputs << " N " << outputs << " at " << r << ", "
                  << c << " of " << rows;
            }
          }
        }
      }
    }
  }
}

// Sums of up to 300 ones are exact in every format, so a dropped or doubled input is detected.
TEST_F(Product, ProductOfOnesCountsEveryInput) {
  for (const DType dtype : kAllDTypes) {
    for (const int inputs :
         {1, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257, 258, 287, 289, 300}) {
      TestMatrix ones(17, inputs);
      for (int r = 0; r < 17; ++r) std::fill_n(ones.row(r), inputs, 1.0f);
      const PackedWeight packed = PackOne(backend(), TestWeight(ones, dtype));
      const TestMatrix out = Multiply(ones.Rows({0, 1}), packed, TestMatrix(2, 17));
      for (int r = 0; r < 2; ++r) {
        for (int c = 0; c < 17; ++c) ASSERT_EQ(out.at(r, c), inputs) << NameOf(dtype);
      }
    }
  }
}

// Chains so long that copies reuse their stages, with a last stage that is not full.
TEST_F(Product, ManyInputsMatchDoublePrecision) {
  std::mt19937 random(7);
  for (const int inputs : {2560, 3300}) {
    for (const int rows : {3, 33}) {
      const TestWeight weight(TestMatrix::Random(17, inputs, random), DType::kBF16);
      const TestMatrix x = TestMatrix::Random(rows, inputs, random);
      const TestMatrix out = Multiply(x, PackOne(backend(), weight), TestMatrix(rows, 17));
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < 17; ++c) {
          const Expected expected = Dot(x.row(r), weight.values().row(c), inputs, true, 0.0f);
          ASSERT_NEAR(out.at(r, c), expected.value, expected.tolerance)
              << "K " << inputs << " at " << r << ", " << c;
        }
      }
    }
  }
}

TEST_F(Product, RowsHaveTheSameBitsAsAlone) {
  std::mt19937 random(2);
  for (const DType dtype : kAllDTypes) {
    for (const auto& [inputs, outputs] : {std::pair{300, 40}, {7, 9}}) {
      if (dtype == DType::kF16) continue;  // same kernel as f32
      const PackedWeight packed =
          PackOne(backend(), TestWeight(TestMatrix::Random(outputs, inputs, random), dtype));
      const TestMatrix x = TestMatrix::Random(70, inputs, random);
      TestMatrix alone(70, outputs);
      for (int r = 0; r < 70; ++r) {
        const TestMatrix out = Multiply(x.Rows({r}), packed, TestMatrix(1, outputs));
        std::copy_n(out.row(0), outputs, alone.row(r));
      }
      std::vector<int> counts = {32, 33, 64, 65, 70};
      for (int count = 1; count <= 17; ++count) counts.push_back(count);
      for (const int count : counts) {
        std::vector<int> order = Iota(70);
        std::shuffle(order.begin(), order.end(), random);
        order.resize(count);
        const TestMatrix out = Multiply(x.Rows(order), packed, TestMatrix(count, outputs));
        EXPECT_TRUE(out.SameBits(alone.Rows(order)))
            << NameOf(dtype) << " K " << inputs << " N " << outputs << " rows " << count;
      }
    }
  }
}

TEST_F(Product, NanAndInfinityStayInTheirRow) {
  std::mt19937 random(3);
  for (const DType dtype : kAllDTypes) {
    const PackedWeight packed =
        PackOne(backend(), TestWeight(TestMatrix::Random(20, 100, random), dtype));
    const TestMatrix x = TestMatrix::Random(12, 100, random);
    const TestMatrix expected = Multiply(x, packed, TestMatrix(12, 20));
    TestMatrix spoilt = x;
    spoilt.at(3, 50) = NAN;
    spoilt.at(9, 99) = INFINITY;
    const TestMatrix out = Multiply(spoilt, packed, TestMatrix(12, 20));
    for (int r = 0; r < 12; ++r) {
      if (r == 3 || r == 9) {
        EXPECT_FALSE(std::isfinite(out.at(r, 0)));
      } else {
        EXPECT_TRUE(out.SameBits(r, expected, r));
      }
    }
  }
}

TEST_F(Product, AddsToTheOutput) {
  std::mt19937 random(4);
  for (const DType dtype : kAllDTypes) {
    const PackedWeight packed =
        PackOne(backend(), TestWeight(TestMatrix::Random(21, 100, random), dtype));
    const TestMatrix x = TestMatrix::Random(9, 100, random);
    const TestMatrix sum = TestMatrix::Random(9, 21, random);
    const TestMatrix product = Multiply(x, packed, TestMatrix(9, 21));
    const TestMatrix out = Multiply(x, packed, sum, Kind::kAdd);
    for (int r = 0; r < 9; ++r) {
      for (int c = 0; c < 21; ++c) EXPECT_EQ(out.at(r, c), sum.at(r, c) + product.at(r, c));
    }
  }
}

// Several parts are one product. Parts without a bias have a bias of 0.
TEST_F(Product, PartsGiveAdjacentOutputs) {
  std::mt19937 random(5);
  for (const DType dtype : kAllDTypes) {
    const TestWeight first(TestMatrix::Random(10, 50, random), dtype);
    const TestWeight second(TestMatrix::Random(3, 50, random), dtype);
    const TestWeight third(TestMatrix::Random(20, 50, random), dtype);
    const std::vector<float> bias = RandomBias(3, random);
    const TestMatrix x = TestMatrix::Random(4, 50, random);
    auto packed = backend().Pack({{first.view()}, {second.view(), bias.data()}, {third.view()}},
                                 PartOrder::kConcatenated);
    ASSERT_TRUE(packed.ok());
    const TestMatrix out = Multiply(x, *packed, TestMatrix(4, 33));
    const TestMatrix a = Multiply(x, PackOne(backend(), first), TestMatrix(4, 10));
    const TestMatrix b = Multiply(x, PackOne(backend(), second, bias.data()), TestMatrix(4, 3));
    const TestMatrix c = Multiply(x, PackOne(backend(), third), TestMatrix(4, 20));
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 10; ++i) EXPECT_EQ(out.at(r, i), a.at(r, i));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(out.at(r, 10 + i), b.at(r, i));
      for (int i = 0; i < 20; ++i) EXPECT_EQ(out.at(r, 13 + i), c.at(r, i));
    }
  }
}

// Gate and up have the same bits as separate products. exp errs by one unit in the last place (the
// CUDA manual says two), and a sum, a quotient and a product are rounded.
TEST_F(Product, GatedIsActivatedGateTimesUp) {
  std::mt19937 random(6);
  for (const DType dtype : kAllDTypes) {
    for (const int outputs : {1, 8, 9, 16, 30}) {
      const int rows = outputs == 30 ? 40 : 11;
      const TestWeight gate(TestMatrix::Random(outputs, 40, random), dtype);
      const TestWeight up(TestMatrix::Random(outputs, 40, random), dtype);
      const std::vector<float> gate_bias = RandomBias(outputs, random);
      const TestMatrix x = TestMatrix::Random(rows, 40, random);
      auto packed =
          backend().Pack({{gate.view(), gate_bias.data()}, {up.view()}}, PartOrder::kGateAndUp);
      ASSERT_TRUE(packed.ok());
      const TestMatrix out = Multiply(x, *packed, TestMatrix(rows, outputs), Kind::kSwiGlu);
      const TestMatrix gelu = Multiply(x, *packed, TestMatrix(rows, outputs), Kind::kGeGlu);
      const TestMatrix g =
          Multiply(x, PackOne(backend(), gate, gate_bias.data()), TestMatrix(rows, outputs));
      const TestMatrix u = Multiply(x, PackOne(backend(), up), TestMatrix(rows, outputs));
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < outputs; ++c) {
          const double gate_value = g.at(r, c);
          const double expected = gate_value / (1.0 + std::exp(-gate_value)) * u.at(r, c);
          ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 8 * 0x1p-24)
              << NameOf(dtype) << " outputs " << outputs << " at " << r << ", " << c;
          const double f = std::sqrt(8 / M_PI) * (gate_value + 0.044715 * std::pow(gate_value, 3));
          const double other = gate_value / (1.0 + std::exp(-f)) * u.at(r, c);
          ASSERT_NEAR(gelu.at(r, c), other,
                      std::abs(other) * (8 + 5 * std::abs(f)) * 0x1p-24 + 0x1p-121)
              << NameOf(dtype) << " outputs " << outputs << " at " << r << ", " << c;
        }
      }
    }
  }
}

// ---- Normalised rows ----

class NormedProduct : public Product {
 protected:
  static constexpr float kEpsilon = 1e-5f;

  TestMatrix MultiplyNormed(const TestMatrix& x, const TestMatrix& norm, const PackedWeight& weight,
                            int outputs, Kind kind = Kind::kStore) {
    DeviceMatrix in(backend(), x), normed(backend(), TestMatrix(x.rows(), x.cols()));
    DeviceMatrix norm_weight(backend(), norm), out(backend(), TestMatrix(x.rows(), outputs));
    const NormedRows rows{
        .x = in.view(), .weight = norm_weight.data(), .epsilon = kEpsilon, .normed = normed.view()};
    if (kind == Kind::kSwiGlu) {
      backend().MatMulGated(rows, weight, Activation::kSilu, out.view());
    } else {
      backend().MatMul(rows, weight, out.view());
    }
    return out.Get();
  }
  PackedWeight Packed(const TestMatrix& values, const float* bias = nullptr) {
    return PackOne(backend(), TestWeight(values, DType::kBF16), bias);
  }
};

// The error of the norm's factor is half that of the sum of `inputs` squares, plus three roundings.
// The product without a norm is multiplied with that factor.
TEST_F(NormedProduct, MatchesDoublePrecision) {
  std::mt19937 random(13);
  for (const DType dtype : kAllDTypes) {
    for (const int inputs : {1, 33, 130, 704}) {
      for (const int rows : {1, 5, 8, 9, 40}) {
        if (rows > 5 && inputs != 130) continue;
        const TestWeight weight(TestMatrix::Random(20, inputs, random), dtype);
        const std::vector<float> bias = RandomBias(20, random);
        const TestMatrix x = TestMatrix::Random(rows, inputs, random, 3.0f);
        const TestMatrix norm = TestMatrix::Random(1, inputs, random);
        const TestMatrix out = MultiplyNormed(x, norm, PackOne(backend(), weight, bias.data()), 20);
        for (int r = 0; r < rows; ++r) {
          double squares = 0.0;
          std::vector<float> weighted(inputs);
          for (int k = 0; k < inputs; ++k) {
            squares += double{x.at(r, k)} * x.at(r, k);
            weighted[k] = x.at(r, k) * norm.at(0, k);
          }
          const double factor = 1.0 / std::sqrt(squares / inputs + double{kEpsilon});
          for (int c = 0; c < 20; ++c) {
            const Expected sum =
                Dot(weighted.data(), weight.values().row(c), inputs, dtype == DType::kBF16, 0.0f);
            const double expected = sum.value * factor + bias[c];
            const double tolerance =
                sum.tolerance * factor * 1.5 +
                (inputs / 2.0 + 5) * 0x1p-23 * (std::abs(sum.value * factor) + std::abs(bias[c]));
            ASSERT_NEAR(out.at(r, c), expected, tolerance)
                << NameOf(dtype) << " K " << inputs << " at " << r << ", " << c << " of " << rows;
          }
        }
      }
    }
  }
}

TEST_F(NormedProduct, RowsHaveTheSameBitsAsAloneAndNanStaysInItsRow) {
  std::mt19937 random(14);
  for (const auto& [inputs, outputs] : {std::pair{300, 40}, {7, 9}, {1300, 17}}) {
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed = Packed(TestMatrix::Random(outputs, inputs, random), bias.data());
    const TestMatrix norm = TestMatrix::Random(1, inputs, random);
    TestMatrix x = TestMatrix::Random(140, inputs, random);
    x.at(3, inputs / 2) = NAN;
    std::map<int, TestMatrix> alone;
    for (const int r : {0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 139}) {
      const TestMatrix one = MultiplyNormed(x.Rows({r}), norm, packed, outputs);
      EXPECT_EQ(std::isnan(one.at(0, 0)), r == 3);
      alone.emplace(r, one);
    }
    for (const int count : {2, 5, 8, 9, 17, 33, 64, 140}) {
      const TestMatrix out = MultiplyNormed(x.Rows(Iota(count)), norm, packed, outputs);
      for (const auto& [r, one] : alone) {
        if (r >= count) continue;
        EXPECT_TRUE(out.SameBits(r, one, 0)) << "K " << inputs << " row " << r << " of " << count;
      }
    }
  }
}

TEST_F(NormedProduct, SwiGluHasTheSameProducts) {
  std::mt19937 random(15);
  const TestWeight gate(TestMatrix::Random(70, 300, random), DType::kBF16);
  const TestWeight up(TestMatrix::Random(70, 300, random), DType::kBF16);
  const TestMatrix norm = TestMatrix::Random(1, 300, random);
  auto packed = backend().Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
  ASSERT_TRUE(packed.ok());
  for (const int rows : {3, 11, 140}) {
    const TestMatrix x = TestMatrix::Random(rows, 300, random);
    const TestMatrix out = MultiplyNormed(x, norm, *packed, 70, Kind::kSwiGlu);
    const TestMatrix g = MultiplyNormed(x, norm, PackOne(backend(), gate), 70);
    const TestMatrix u = MultiplyNormed(x, norm, PackOne(backend(), up), 70);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < 70; ++c) {
        const double value = g.at(r, c);
        const double expected = value / (1.0 + std::exp(-value)) * u.at(r, c);
        ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 8 * 0x1p-24);
      }
    }
  }
}

// ---- Many rows ----

// Blocks for many rows give the same bits as blocks for few rows.
class ProductOfManyRows : public Product {
 protected:
  // Compares all rows at once with 64 rows at a time, from `first_row` on.
  void Compare(int rows, int inputs, int outputs, int first_row) {
    std::mt19937 random(rows + inputs);
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed =
        PackOne(backend(), TestWeight(TestMatrix::Random(outputs, inputs, random), DType::kBF16),
                bias.data());
    const TestMatrix x = TestMatrix::Random(rows, inputs, random);
    const TestMatrix out = Multiply(x, packed, TestMatrix(rows, outputs));
    for (int first = first_row; first < rows; first += 64) {
      std::vector<int> some = Iota(std::min(64, rows - first));
      for (int& row : some) row += first;
      const TestMatrix few =
          Multiply(x.Rows(some), packed, TestMatrix(static_cast<int>(some.size()), outputs));
      EXPECT_TRUE(few.SameBits(out.Rows(some)))
          << "K " << inputs << " N " << outputs << " rows from " << first << " of " << rows;
    }
  }
};

TEST_F(ProductOfManyRows, HasTheSameBitsAsFewRows) {
  Compare(65, 33, 129, 0);    // the last tiles have one output and one row
  Compare(260, 530, 150, 0);  // uses every stage of the ring
  Compare(129, 2100, 8, 0);
}

// Enough blocks that every device uses the kernel for many rows.
TEST_F(ProductOfManyRows, HasTheSameBitsAsFewRowsOnAnyDevice) { Compare(1024, 32, 2112, 992); }

TEST_F(ProductOfManyRows, EpiloguesMatchThoseOfFewRows) {
  std::mt19937 random(12);
  const TestWeight gate(TestMatrix::Random(70, 40, random), DType::kBF16);
  const TestWeight up(TestMatrix::Random(70, 40, random), DType::kBF16);
  const std::vector<float> bias = RandomBias(70, random);
  const TestMatrix x = TestMatrix::Random(140, 40, random);
  const TestMatrix sum = TestMatrix::Random(140, 70, random);
  auto packed = backend().Pack({{gate.view(), bias.data()}, {up.view()}}, PartOrder::kGateAndUp);
  ASSERT_TRUE(packed.ok());
  const PackedWeight gate_alone = PackOne(backend(), gate, bias.data());
  const TestMatrix gated = Multiply(x, *packed, TestMatrix(140, 70), Kind::kSwiGlu);
  const TestMatrix added = Multiply(x, gate_alone, sum, Kind::kAdd);
  for (int first = 0; first < 140; first += 35) {
    std::vector<int> some = Iota(35);
    for (int& row : some) row += first;
    EXPECT_TRUE(Multiply(x.Rows(some), *packed, TestMatrix(35, 70), Kind::kSwiGlu)
                    .SameBits(gated.Rows(some)));
    EXPECT_TRUE(
        Multiply(x.Rows(some), gate_alone, sum.Rows(some), Kind::kAdd).SameBits(added.Rows(some)));
  }
}

}  // namespace
}  // namespace tandem::cuda
