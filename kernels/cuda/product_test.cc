// Products on a device: their results, and that a row's bits do not depend on the other rows.
#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/product_testing.h"

namespace tandem::cuda {
namespace {

// A chain of K sums errs by at most K * eps * sum |x w| to first order. eps is half a unit in the
// last place, or a whole one in tensor cores, which truncate sums instead of rounding them. Adding
// the chains of block formats takes 8 more sums. Twice that covers the higher orders, the bias and
// the epilogue.
double RelativeBound(int inputs) { return 2.0 * (inputs + 10) * 0x1p-23; }

using Product = CudaTest;

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
          ExpectNearExactProduct(Multiply(backend(), x, PackOne(backend(), weight, bias.data())), x,
                                 weight, bias, dtype == DType::kBF16, RelativeBound(inputs));
        }
      }
    }
  }
}

TEST_F(Product, ProductOfOnesCountsEveryInput) {
  for (const DType dtype : kAllDTypes) {
    for (const int inputs :
         {1, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257, 258, 287, 289, 300}) {
      ExpectCountsEveryInput(backend(), dtype, inputs, 17, {2});
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
      ExpectNearExactProduct(Multiply(backend(), x, PackOne(backend(), weight)), x, weight,
                             std::vector<float>(17), true, RelativeBound(inputs));
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
      std::vector<int> counts = {32, 33, 64, 65, 70};
      for (int count = 1; count <= 17; ++count) counts.push_back(count);
      SCOPED_TRACE(NameOf(dtype));
      ExpectRowsAsAlone(TestMatrix::Random(70, inputs, random), counts, random,
                        [&](const TestMatrix& rows) { return Multiply(backend(), rows, packed); });
    }
  }
}

TEST_F(Product, NanAndInfinityStayInTheirRow) {
  std::mt19937 random(3);
  for (const DType dtype : kAllDTypes) {
    const TestWeight weight(TestMatrix::Random(20, 100, random), dtype);
    ExpectNonFiniteStaysInItsRow(backend(), TestMatrix::Random(12, 100, random),
                                 PackOne(backend(), weight));
  }
}

TEST_F(Product, AddsToTheOutput) {
  std::mt19937 random(4);
  for (const DType dtype : kAllDTypes) {
    const TestWeight weight(TestMatrix::Random(21, 100, random), dtype);
    ExpectAdds(backend(), TestMatrix::Random(9, 100, random), PackOne(backend(), weight), random);
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
    const std::vector<WeightPart> parts = {
        {first.view()}, {second.view(), bias.data()}, {third.view()}};
    ExpectAdjacentParts(backend(), TestMatrix::Random(4, 50, random),
                        PackParts(backend(), parts, PartOrder::kConcatenated), parts);
  }
}

// exp errs by one unit in the last place (the CUDA manual says two).
TEST_F(Product, GatedIsActivatedGateTimesUp) {
  std::mt19937 random(6);
  for (const DType dtype : kAllDTypes) {
    for (const int outputs : {1, 8, 9, 16, 30}) {
      const int rows = outputs == 30 ? 40 : 11;
      const TestWeight gate(TestMatrix::Random(outputs, 40, random), dtype);
      const TestWeight up(TestMatrix::Random(outputs, 40, random), dtype);
      const std::vector<float> gate_bias = RandomBias(outputs, random);
      ExpectGatedProduct(backend(), TestMatrix::Random(rows, 40, random),
                         {gate.view(), gate_bias.data()}, {up.view()}, 0x1p-121);
    }
  }
}

// ---- Normalised rows ----

using NormedProduct = CudaTest;

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
        const TestMatrix out =
            MultiplyNormed(backend(), x, norm, PackOne(backend(), weight, bias.data()));
        for (int r = 0; r < rows; ++r) {
          double squares = 0.0;
          std::vector<float> weighted(inputs);
          for (int k = 0; k < inputs; ++k) {
            squares += double{x.at(r, k)} * x.at(r, k);
            weighted[k] = x.at(r, k) * norm.at(0, k);
          }
          const double factor = 1.0 / std::sqrt(squares / inputs + double{kNormEpsilon});
          for (int c = 0; c < 20; ++c) {
            const ExactDot sum = DotInDouble(weighted.data(), weight.values().row(c), inputs,
                                             dtype == DType::kBF16, 0.0f);
            const double expected = sum.value * factor + bias[c];
            const double tolerance =
                RelativeBound(inputs) * sum.magnitude * factor * 1.5 +
                (inputs / 2.0 + 5) * 0x1p-23 * (std::abs(sum.value * factor) + std::abs(bias[c]));
            ASSERT_NEAR(out.at(r, c), expected, tolerance)
                << NameOf(dtype) << " K " << inputs << " at " << r << ", " << c << " of " << rows;
          }
        }
      }
    }
  }
}

// The product of the rows times the norm's weights, multiplied with the factor.
TEST_F(NormedProduct, FactorsSumSquaresInTheOrderOfAllNorms) {
  std::mt19937 random(16);
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ6K}) {
    for (const int inputs : {256, 1280}) {
      const TestMatrix norm = TestMatrix::Random(1, inputs, random);
      const RandomBlocks blocks(IsBlocks(dtype) ? dtype : DType::kQ8_0, 24, inputs, random);
      const PackedWeight packed =
          IsBlocks(dtype)
              ? PackParts(backend(), {{blocks.view()}}, PartOrder::kConcatenated)
              : PackOne(backend(), TestWeight(TestMatrix::Random(24, inputs, random), dtype));
      for (const int rows : {1, 5, 9, 70}) {
        const TestMatrix x = TestMatrix::Random(rows, inputs, random, 3.0f);
        TestMatrix weighted = x;
        for (int r = 0; r < rows; ++r) {
          for (int k = 0; k < inputs; ++k) weighted.at(r, k) = x.at(r, k) * norm.at(0, k);
        }
        TestMatrix expected = Multiply(backend(), weighted, packed);
        for (int r = 0; r < rows; ++r) {
          const float factor = NormFactorOf(x.row(r), inputs, kNormEpsilon);
          for (int c = 0; c < 24; ++c) expected.at(r, c) *= factor;
        }
        EXPECT_TRUE(MultiplyNormed(backend(), x, norm, packed).SameBits(expected))
            << NameOf(dtype) << " K " << inputs << " rows " << rows;
      }
    }
  }
}

TEST_F(NormedProduct, RowsHaveTheSameBitsAsAloneAndNanStaysInItsRow) {
  std::mt19937 random(14);
  for (const auto& [inputs, outputs] : {std::pair{300, 40}, {7, 9}, {1300, 17}}) {
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed =
        PackOne(backend(), TestWeight(TestMatrix::Random(outputs, inputs, random), DType::kBF16),
                bias.data());
    const TestMatrix norm = TestMatrix::Random(1, inputs, random);
    TestMatrix x = TestMatrix::Random(140, inputs, random);
    x.at(3, inputs / 2) = NAN;
    std::map<int, TestMatrix> alone;
    for (const int r : {0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 139}) {
      const TestMatrix one = MultiplyNormed(backend(), x.Rows({r}), norm, packed);
      EXPECT_EQ(std::isnan(one.at(0, 0)), r == 3);
      alone.emplace(r, one);
    }
    for (const int count : {2, 5, 8, 9, 17, 33, 64, 140}) {
      const TestMatrix out = MultiplyNormed(backend(), x.Rows(Iota(count)), norm, packed);
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
  const PackedWeight packed =
      PackParts(backend(), {{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
  for (const int rows : {3, 11, 140}) {
    const TestMatrix x = TestMatrix::Random(rows, 300, random);
    const TestMatrix out = MultiplyNormed(backend(), x, norm, packed);
    const TestMatrix g = MultiplyNormed(backend(), x, norm, PackOne(backend(), gate));
    const TestMatrix u = MultiplyNormed(backend(), x, norm, PackOne(backend(), up));
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < 70; ++c) {
        const double expected = SwiGlu(g.at(r, c), u.at(r, c));
        ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 8 * 0x1p-24);
      }
    }
  }
}

// ---- Many rows ----

// Blocks for many rows give the same bits as blocks for few rows.
class ProductOfManyRows : public CudaTest {
 protected:
  // Compares all rows at once with 64 rows at a time, from `first_row` on.
  void Compare(int rows, int inputs, int outputs, int first_row) {
    std::mt19937 random(rows + inputs);
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed =
        PackOne(backend(), TestWeight(TestMatrix::Random(outputs, inputs, random), DType::kBF16),
                bias.data());
    const TestMatrix x = TestMatrix::Random(rows, inputs, random);
    const TestMatrix out = Multiply(backend(), x, packed);
    for (int first = first_row; first < rows; first += 64) {
      std::vector<int> some = Iota(std::min(64, rows - first));
      for (int& row : some) row += first;
      const TestMatrix few = Multiply(backend(), x.Rows(some), packed);
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
  const PackedWeight packed =
      PackParts(backend(), {{gate.view(), bias.data()}, {up.view()}}, PartOrder::kGateAndUp);
  const PackedWeight gate_alone = PackOne(backend(), gate, bias.data());
  const TestMatrix gated = MultiplyGated(backend(), x, packed);
  const TestMatrix added = MultiplyAdd(backend(), x, gate_alone, sum);
  for (int first = 0; first < 140; first += 35) {
    std::vector<int> some = Iota(35);
    for (int& row : some) row += first;
    EXPECT_TRUE(MultiplyGated(backend(), x.Rows(some), packed).SameBits(gated.Rows(some)));
    EXPECT_TRUE(MultiplyAdd(backend(), x.Rows(some), gate_alone, sum.Rows(some))
                    .SameBits(added.Rows(some)));
  }
}

}  // namespace
}  // namespace tandem::cuda
