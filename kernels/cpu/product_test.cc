// Tests of products with packed weights: results are right, and the bits of a row depend on nothing
// else in the pass.
#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

constexpr int kInputs[] = {1, 2, 3, 7, 24, 32, 40, 127, 130, 704};
constexpr int kOutputs[] = {1, 8, 63, 64, 65, 293, 509};

// The product of x and the weight's values in double, and the tolerance of f32.
//
// To first order, the error of a chain of K roundings (the dot product of bf16 rounds at most twice
// for each pair) is at most K * eps * sum |x w|. Twice that covers the higher orders, the bias and
// the epilogue.
struct Expected {
  double value = 0.0;
  double tolerance = 0.0;
};
Expected Dot(const float* x, const float* w, int inputs, bool rounds_to_bf16, float bias) {
  const ExactDot dot = DotInDouble(x, w, inputs, rounds_to_bf16, bias);
  return {.value = dot.value, .tolerance = 2.0 * (inputs + 2) * 0x1p-24 * dot.magnitude};
}

TEST(Product, MatchesDoublePrecisionForEveryShape) {
  std::mt19937 random(1);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      for (const int inputs : kInputs) {
        for (const int outputs : kOutputs) {
          const TestWeight weight(TestMatrix::Random(outputs, inputs, random), dtype);
          const std::vector<float> bias = RandomBias(outputs, random);
          const TestMatrix x = TestMatrix::Random(5, inputs, random);
          TestMatrix out(5, outputs);
          const PackedWeight packed = PackOne(*test.backend, weight, bias.data());
          test.backend->MatMul(x.view(), packed, out.view());
          const bool rounds = test.rounds_to_bf16 && dtype == DType::kBF16;
          for (int r = 0; r < x.rows(); ++r) {
            for (int c = 0; c < outputs; ++c) {
              const Expected expected =
                  Dot(x.row(r), weight.values().row(c), inputs, rounds, bias[c]);
              ASSERT_NEAR(out.at(r, c), expected.value, expected.tolerance)
                  << test.label << " " << NameOf(dtype) << " K " << inputs << " N " << outputs
                  << " at " << r << ", " << c;
            }
          }
        }
      }
    }
  }
}

// Sums of up to 300 ones are exact in every format, so a single dropped or doubled input shows.
TEST(Product, CountsEveryInputOnce) {
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      for (int inputs = 1; inputs <= 300; ++inputs) {
        TestMatrix ones(70, inputs);
        for (int r = 0; r < 70; ++r) std::fill_n(ones.row(r), inputs, 1.0f);
        const PackedWeight packed = PackOne(*test.backend, TestWeight(ones, dtype));
        for (const int rows : {1, 7}) {
          TestMatrix out(rows, 70);
          test.backend->MatMul(ones.Rows(Iota(rows)).view(), packed, out.view());
          for (int r = 0; r < rows; ++r) {
            for (int c = 0; c < 70; ++c) {
              ASSERT_EQ(out.at(r, c), inputs) << test.label << " " << NameOf(dtype);
            }
          }
        }
      }
    }
  }
}

TEST(Product, RowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(2);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      for (const auto& [inputs, outputs] : {std::pair{130, 293}, {704, 64}, {7, 65}, {300, 128}}) {
        const PackedWeight packed =
            PackOne(*test.backend, TestWeight(TestMatrix::Random(outputs, inputs, random), dtype));
        const TestMatrix x = TestMatrix::Random(100, inputs, random);
        TestMatrix alone(100, outputs);
        for (int r = 0; r < 100; ++r) {
          TestMatrix out(1, outputs);
          test.backend->MatMul(x.Rows({r}).view(), packed, out.view());
          std::copy_n(out.row(0), outputs, alone.row(r));
        }
        std::vector<int> counts = Iota(18);
        counts.insert(counts.end(), {32, 64, 100});
        for (const int count : counts) {
          std::vector<int> order = Iota(100);
          std::shuffle(order.begin(), order.end(), random);
          order.resize(count);
          TestMatrix out(count, outputs);
          test.backend->MatMul(x.Rows(order).view(), packed, out.view());
          for (int r = 0; r < count; ++r) {
            ASSERT_TRUE(out.SameBits(r, alone, order[r]))
                << test.label << " " << NameOf(dtype) << " row " << r << " of " << count;
          }
        }
      }
    }
  }
}

// There are more rows than a tile holds, and so many threads that they share rows too.
TEST(Product, RowsHaveTheSameBitsForEveryNumberOfThreads) {
  std::mt19937 random(3);
  const TestMatrix x = TestMatrix::Random(1100, 96, random);
  const TestWeight weight(TestMatrix::Random(72, 96, random), DType::kBF16);
  for (const std::string& isa : CpuIsas()) {
    for (const CpuCompute compute : {CpuCompute::kF32, CpuCompute::kAuto}) {
      TestBackend one = MakeTestBackend(isa, compute, 1);
      TestMatrix expected(x.rows(), 72);
      one.backend->MatMul(x.view(), PackOne(*one.backend, weight), expected.view());
      for (const int threads : {2, 3, 7}) {
        TestBackend many = MakeTestBackend(isa, compute, threads);
        TestMatrix out(x.rows(), 72);
        many.backend->MatMul(x.view(), PackOne(*many.backend, weight), out.view());
        ASSERT_TRUE(out.SameBits(expected)) << many.label;
      }
    }
  }
}

// All instruction sets with a fused multiply-add round f32 products in the same way.
TEST(Product, HasTheSameBitsOnEveryFusedInstructionSet) {
  std::mt19937 random(4);
  const TestMatrix x = TestMatrix::Random(9, 333, random);
  for (const DType dtype : kAllDTypes) {
    const TestWeight weight(TestMatrix::Random(100, 333, random), dtype);
    TestMatrix first(9, 100);
    bool have_first = false;
    for (const std::string& isa : CpuIsas()) {
      if (isa == "portable") continue;
      TestBackend test = MakeTestBackend(isa, CpuCompute::kF32, 1);
      TestMatrix out(9, 100);
      test.backend->MatMul(x.view(), PackOne(*test.backend, weight), out.view());
      if (have_first) {
        EXPECT_TRUE(out.SameBits(first)) << isa << " " << NameOf(dtype);
      }
      first = out;
      have_first = true;
    }
  }
}

TEST(Product, WidensSpecialValuesExactly) {
  // Multiplies subnormal, largest and infinite weights by one. A NaN stays a NaN.
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      if (test.rounds_to_bf16 && dtype == DType::kBF16) continue;  // flushes subnormals to 0
      TestMatrix values(1, 6);
      const float special[] = {0x1p-24f, -0x1.8p-15f, 65504.0f, -0.0f, INFINITY, NAN};
      std::copy_n(special, 6, values.row(0));
      const TestWeight weight(values, dtype);
      const PackedWeight packed = PackOne(*test.backend, weight);
      for (int k = 0; k < 4; ++k) {
        TestMatrix x(1, 4), out(1, 1);
        x.at(0, k) = 1.0f;
        ConstMatrixView four = weight.view();
        four.cols = 4;
        auto first_four = test.backend->Pack({{four, nullptr}}, PartOrder::kConcatenated);
        ASSERT_TRUE(first_four.ok());
        test.backend->MatMul(x.view(), *first_four, out.view());
        EXPECT_EQ(out.at(0, 0), weight.values().at(0, k)) << test.label << " " << NameOf(dtype);
      }
      TestMatrix x(1, 6), out(1, 1);
      for (int k = 0; k < 5; ++k) x.at(0, k) = 1.0f;
      test.backend->MatMul(x.view(), packed, out.view());
      EXPECT_TRUE(std::isnan(out.at(0, 0))) << test.label;
    }
  }
}

TEST(Product, NanStaysInItsRow) {
  std::mt19937 random(5);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      const TestWeight weight(TestMatrix::Random(80, 50, random), dtype);
      const PackedWeight packed = PackOne(*test.backend, weight);
      TestMatrix x = TestMatrix::Random(9, 50, random);
      TestMatrix clean(9, 80), out(9, 80);
      test.backend->MatMul(x.view(), packed, clean.view());
      x.at(4, 17) = NAN;
      test.backend->MatMul(x.view(), packed, out.view());
      for (int r = 0; r < 9; ++r) {
        if (r != 4) {
          EXPECT_TRUE(out.SameBits(r, clean, r));
        }
      }
      for (int c = 0; c < 80; ++c) EXPECT_TRUE(std::isnan(out.at(4, c)));
    }
  }
}

// With an odd number of activations, the last step of two 16-bit inputs reads one place after them.
TEST(Product, IgnoresTheActivationsOfEarlierCalls) {
  std::mt19937 random(10);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      const TestMatrix x = TestMatrix::Random(3, 127, random);
      const PackedWeight odd =
          PackOne(*test.backend, TestWeight(TestMatrix::Random(64, 127, random), dtype));
      const PackedWeight even =
          PackOne(*test.backend, TestWeight(TestMatrix::Random(64, 128, random), dtype));
      TestMatrix before(3, 64), after(3, 64), nans(3, 128), ignored(3, 64);
      for (int r = 0; r < 3; ++r) std::fill_n(nans.row(r), 128, NAN);
      test.backend->MatMul(x.view(), odd, before.view());
      test.backend->MatMul(nans.view(), even, ignored.view());
      test.backend->MatMul(x.view(), odd, after.view());
      EXPECT_TRUE(after.SameBits(before)) << test.label << " " << NameOf(dtype);
    }
  }
}

TEST(Product, ConcatenatesTheOutputsOfItsParts) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    const TestWeight query(TestMatrix::Random(32, 24, random), DType::kBF16);
    const TestWeight key(TestMatrix::Random(16, 24, random), DType::kBF16);
    const TestWeight value(TestMatrix::Random(40, 24, random), DType::kBF16);
    const std::vector<float> bias = RandomBias(16, random);
    auto packed = test.backend->Pack({{query.view()}, {key.view(), bias.data()}, {value.view()}},
                                     PartOrder::kConcatenated);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(packed->outputs, 88);
    EXPECT_EQ(packed->bytes_read, 2u * 64 * 24 * 2);
    const TestMatrix x = TestMatrix::Random(3, 24, random);
    TestMatrix out(3, 88), queries(3, 32), keys(3, 16), values(3, 40);
    test.backend->MatMul(x.view(), *packed, out.view());
    test.backend->MatMul(x.view(), PackOne(*test.backend, query), queries.view());
    test.backend->MatMul(x.view(), PackOne(*test.backend, key, bias.data()), keys.view());
    test.backend->MatMul(x.view(), PackOne(*test.backend, value), values.view());
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(std::memcmp(out.row(r), queries.row(r), 32 * 4), 0);
      EXPECT_EQ(std::memcmp(out.row(r) + 32, keys.row(r), 16 * 4), 0);
      EXPECT_EQ(std::memcmp(out.row(r) + 48, values.row(r), 40 * 4), 0);
    }
  }
}

TEST(ProductAdd, AddsTheProductToTheResidualWithOneRounding) {
  std::mt19937 random(7);
  for (TestBackend& test : AllBackends()) {
    for (const bool with_bias : {false, true}) {
      const TestWeight weight(TestMatrix::Random(99, 77, random), DType::kF16);
      const std::vector<float> bias = RandomBias(99, random);
      const PackedWeight packed = PackOne(*test.backend, weight, with_bias ? bias.data() : nullptr);
      const TestMatrix x = TestMatrix::Random(4, 77, random);
      const TestMatrix residual = TestMatrix::Random(4, 99, random);
      TestMatrix product(4, 99);
      TestMatrix sum = residual;
      test.backend->MatMul(x.view(), packed, product.view());
      test.backend->MatMulAdd(x.view(), packed, sum.view());
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 99; ++c) {
          EXPECT_EQ(sum.at(r, c), residual.at(r, c) + product.at(r, c)) << test.label;
        }
      }
    }
  }
}

// gate / (1 + exp(-gate)) * up, from the rounded gate and up: the error of exp is 2 units in the
// last place, at most 2^-22 of it, and three more operations round by 2^-24 each. If exp is
// infinite, for gates below about -88.8, the result is within 89 * 2^-128 * |up| of zero.
TEST(ProductGated, IsSiluOfTheGateTimesUp) {
  std::mt19937 random(8);
  for (TestBackend& test : AllBackends()) {
    for (const int features : {1, 63, 64, 65, 200}) {
      for (const bool with_bias : {false, true}) {
        const TestWeight gate(TestMatrix::Random(features, 40, random, 5.0f), DType::kBF16);
        const TestWeight up(TestMatrix::Random(features, 40, random), DType::kBF16);
        const std::vector<float> gate_bias = RandomBias(features, random);
        const std::vector<float> up_bias = RandomBias(features, random);
        const float* biases[] = {with_bias ? gate_bias.data() : nullptr,
                                 with_bias ? up_bias.data() : nullptr};
        auto packed = test.backend->Pack({{gate.view(), biases[0]}, {up.view(), biases[1]}},
                                         PartOrder::kGateAndUp);
        ASSERT_TRUE(packed.ok());
        EXPECT_EQ(packed->outputs, 2 * features);
        const TestMatrix x = TestMatrix::Random(8, 40, random);
        TestMatrix out(8, features), gates(8, features), ups(8, features), gelu(8, features);
        test.backend->MatMulGated(x.view(), *packed, Activation::kSilu, out.view());
        test.backend->MatMulGated(x.view(), *packed, Activation::kGeluTanh, gelu.view());
        test.backend->MatMul(x.view(), PackOne(*test.backend, gate, biases[0]), gates.view());
        test.backend->MatMul(x.view(), PackOne(*test.backend, up, biases[1]), ups.view());
        for (int r = 0; r < 8; ++r) {
          for (int c = 0; c < features; ++c) {
            const double g = gates.at(r, c), u = ups.at(r, c);
            const double expected = g / (1.0 + std::exp(-g)) * u;
            ASSERT_NEAR(out.at(r, c), expected,
                        std::abs(expected) * 0x1p-21 + 0x1p-121 * (1 + std::abs(u)))
                << test.label << " gate " << g;
            // Five roundings of the argument f of exp change the result by 5 * 2^-24 * |f|,
            // relatively.
            const double f = std::sqrt(8 / M_PI) * (g + 0.044715 * g * g * g);
            const double other = g / (1.0 + std::exp(-f)) * u;
            ASSERT_NEAR(gelu.at(r, c), other,
                        std::abs(other) * (0x1p-21 + 5 * 0x1p-24 * std::abs(f)) +
                            0x1p-121 * (1 + std::abs(u)))
                << test.label << " gate " << g;
          }
        }
      }
    }
  }
}

TEST(ProductGated, RowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(9);
  for (TestBackend& test : AllBackends()) {
    const Activation activation = Activation::kGeluTanh;
    const TestWeight gate(TestMatrix::Random(150, 200, random), DType::kBF16);
    const TestWeight up(TestMatrix::Random(150, 200, random), DType::kBF16);
    auto packed = test.backend->Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
    ASSERT_TRUE(packed.ok());
    const TestMatrix x = TestMatrix::Random(17, 200, random);
    for (int count = 1; count <= 17; ++count) {
      TestMatrix out(count, 150);
      test.backend->MatMulGated(x.Rows(Iota(count)).view(), *packed, activation, out.view());
      for (int r = 0; r < count; ++r) {
        TestMatrix alone(1, 150);
        test.backend->MatMulGated(x.Rows({r}).view(), *packed, activation, alone.view());
        ASSERT_TRUE(out.SameBits(r, alone, 0)) << test.label << " " << r << " of " << count;
      }
    }
  }
}

TEST(ProductDeathTest, RejectsAWeightPackedForAnotherOperation) {
  TestBackend test = MakeTestBackend("portable", CpuCompute::kF32, 1);
  const TestWeight weight(TestMatrix(64, 8), DType::kF32);
  auto gate_and_up = test.backend->Pack({{weight.view()}, {weight.view()}}, PartOrder::kGateAndUp);
  ASSERT_TRUE(gate_and_up.ok());
  const TestMatrix x(1, 8);
  TestMatrix out(1, 128), half(1, 64);
  EXPECT_DEATH(test.backend->MatMul(x.view(), *gate_and_up, out.view()), "check failed");
  const PackedWeight one = PackOne(*test.backend, weight);
  EXPECT_DEATH(test.backend->MatMulGated(x.view(), one, Activation::kSilu, half.view()),
               "check failed");
  EXPECT_DEATH(test.backend->MatMul(TestMatrix(1, 7).view(), one, half.view()), "check failed");
}

}  // namespace
}  // namespace tandem
