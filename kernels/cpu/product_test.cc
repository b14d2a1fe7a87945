// Tests of products with packed weights: results are right, and the bits of a row depend on nothing
// else in the pass.
#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"
#include "kernels/product_testing.h"

namespace tandem {
namespace {

constexpr int kInputs[] = {1, 2, 3, 7, 24, 32, 40, 127, 130, 704};
constexpr int kOutputs[] = {1, 8, 63, 64, 65, 293, 509};

// To first order, the error of a chain of K roundings (the dot product of bf16 rounds at most twice
// for each pair) is at most K * eps * sum |x w|. Twice that covers the higher orders, the bias and
// the epilogue.
double RelativeBound(int inputs) { return 2.0 * (inputs + 2) * 0x1p-24; }

TEST(Product, MatchesDoublePrecisionForEveryShape) {
  std::mt19937 random(1);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      for (const int inputs : kInputs) {
        for (const int outputs : kOutputs) {
          const TestWeight weight(TestMatrix::Random(outputs, inputs, random), dtype);
          const std::vector<float> bias = RandomBias(outputs, random);
          const TestMatrix x = TestMatrix::Random(5, inputs, random);
          const PackedWeight packed = PackOne(*test.backend, weight, bias.data());
          SCOPED_TRACE(test.label);
          ExpectNearExactProduct(Multiply(*test.backend, x, packed), x, weight, bias,
                                 test.rounds_to_bf16 && dtype == DType::kBF16,
                                 RelativeBound(inputs));
        }
      }
    }
  }
}

TEST(Product, CountsEveryInputOnce) {
  for (TestBackend& test : AllBackends()) {
    SCOPED_TRACE(test.label);
    for (const DType dtype : kAllDTypes) {
      for (int inputs = 1; inputs <= 300; ++inputs) {
        ExpectCountsEveryInput(*test.backend, dtype, inputs, 70, {1, 7});
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
        std::vector<int> counts = Iota(18);
        counts.insert(counts.end(), {32, 64, 100});
        SCOPED_TRACE(testing::Message() << test.label << " " << NameOf(dtype));
        ExpectRowsAsAlone(x, counts, random, [&](const TestMatrix& rows) {
          return Multiply(*test.backend, rows, packed);
        });
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
      const TestMatrix expected = Multiply(*one.backend, x, PackOne(*one.backend, weight));
      for (const int threads : {2, 3, 7}) {
        TestBackend many = MakeTestBackend(isa, compute, threads);
        ASSERT_TRUE(Multiply(*many.backend, x, PackOne(*many.backend, weight)).SameBits(expected))
            << many.label;
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
      const TestMatrix out = Multiply(*test.backend, x, PackOne(*test.backend, weight));
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
    SCOPED_TRACE(test.label);
    for (const DType dtype : kAllDTypes) {
      const TestWeight weight(TestMatrix::Random(80, 50, random), dtype);
      ExpectNonFiniteStaysInItsRow(*test.backend, TestMatrix::Random(9, 50, random),
                                   PackOne(*test.backend, weight));
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
      TestMatrix nans(3, 128);
      for (int r = 0; r < 3; ++r) std::fill_n(nans.row(r), 128, NAN);
      const TestMatrix before = Multiply(*test.backend, x, odd);
      Multiply(*test.backend, nans, even);
      EXPECT_TRUE(Multiply(*test.backend, x, odd).SameBits(before))
          << test.label << " " << NameOf(dtype);
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
    const std::vector<WeightPart> parts = {
        {query.view()}, {key.view(), bias.data()}, {value.view()}};
    const PackedWeight packed = PackParts(*test.backend, parts, PartOrder::kConcatenated);
    EXPECT_EQ(packed.outputs, 88);
    EXPECT_EQ(packed.bytes_read, 2u * 64 * 24 * 2);
    SCOPED_TRACE(test.label);
    ExpectAdjacentParts(*test.backend, TestMatrix::Random(3, 24, random), packed, parts);
  }
}

TEST(ProductAdd, AddsTheProductToTheResidualWithOneRounding) {
  std::mt19937 random(7);
  for (TestBackend& test : AllBackends()) {
    for (const bool with_bias : {false, true}) {
      const TestWeight weight(TestMatrix::Random(99, 77, random), DType::kF16);
      const std::vector<float> bias = RandomBias(99, random);
      const PackedWeight packed = PackOne(*test.backend, weight, with_bias ? bias.data() : nullptr);
      SCOPED_TRACE(test.label);
      ExpectAdds(*test.backend, TestMatrix::Random(4, 77, random), packed, random);
    }
  }
}

TEST(ProductGated, IsSiluOfTheGateTimesUp) {
  std::mt19937 random(8);
  for (TestBackend& test : AllBackends()) {
    for (const int features : {1, 63, 64, 65, 200}) {
      for (const bool with_bias : {false, true}) {
        const TestWeight gate(TestMatrix::Random(features, 40, random, 5.0f), DType::kBF16);
        const TestWeight up(TestMatrix::Random(features, 40, random), DType::kBF16);
        const std::vector<float> gate_bias = RandomBias(features, random);
        const std::vector<float> up_bias = RandomBias(features, random);
        SCOPED_TRACE(test.label);
        ExpectGatedProduct(*test.backend, TestMatrix::Random(8, 40, random),
                           {gate.view(), with_bias ? gate_bias.data() : nullptr},
                           {up.view(), with_bias ? up_bias.data() : nullptr}, 0x1p-121);
      }
    }
  }
}

TEST(ProductGated, RowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(9);
  for (TestBackend& test : AllBackends()) {
    const TestWeight gate(TestMatrix::Random(150, 200, random), DType::kBF16);
    const TestWeight up(TestMatrix::Random(150, 200, random), DType::kBF16);
    const PackedWeight packed =
        PackParts(*test.backend, {{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
    SCOPED_TRACE(test.label);
    ExpectRowsAsAlone(TestMatrix::Random(17, 200, random), Iota(18), random,
                      [&](const TestMatrix& rows) {
                        return MultiplyGated(*test.backend, rows, packed, Activation::kGeluTanh);
                      });
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
