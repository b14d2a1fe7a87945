// Tests of experts: the choice of experts against double precision, and their mix against the same
// row alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

struct Choices {
  Choices(int rows, int per_row) : experts(rows * per_row), weights(rows * per_row) {
    view = {.experts = experts.data(), .weights = weights.data(), .per_row = per_row};
  }
  std::vector<int32_t> experts;
  std::vector<float> weights;
  ExpertChoices view;
};

TEST(ChooseExperts, TakesTheLargestAndTheirSoftmax) {
  constexpr int kRows = 37, kExperts = 21, kChosen = 4;
  std::mt19937 random(1);
  const TestMatrix logits = TestMatrix::Random(kRows, kExperts, random, 3.0f);
  for (TestBackend& test : AllBackends()) {
    for (const bool renormalises : {false, true}) {
      Choices choices(kRows, kChosen);
      TestMatrix copy = logits;
      test.backend->ChooseExperts(copy.view(), renormalises, choices.view);
      for (int r = 0; r < kRows; ++r) {
        const float* const row = logits.row(r);
        std::vector<int> order = Iota(kExperts);
        std::sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
        order.resize(kChosen);
        std::sort(order.begin(), order.end());
        double total = 0.0;
        if (renormalises) {
          for (const int e : order) total += std::exp(double{row[e]});
        } else {
          for (int e = 0; e < kExperts; ++e) total += std::exp(double{row[e]});
        }
        for (int i = 0; i < kChosen; ++i) {
          const int at = r * kChosen + i;
          ASSERT_EQ(choices.experts[at], order[i]) << test.label;
          const double expected = std::exp(double{row[order[i]]}) / total;
          // Two exps of 2 units in the last place each, of differences up to 20 that are rounded,
          // and a sum.
          ASSERT_NEAR(choices.weights[at], expected, 64 * 0x1p-24 * expected) << test.label;
        }
      }
    }
  }
}

TEST(ChooseExperts, TakesTheFirstOfEqualsAndKeepsNanInItsRow) {
  TestBackend test = MakeTestBackend("portable", CpuCompute::kF32, 1);
  TestMatrix logits(3, 5);
  for (int e = 0; e < 5; ++e) logits.at(1, e) = e == 3 ? NAN : 1.0f;
  logits.at(2, 4) = 2.0f;
  Choices choices(3, 2);
  test.backend->ChooseExperts(logits.view(), true, choices.view);
  EXPECT_EQ(choices.experts, (std::vector<int32_t>{0, 1, 0, 1, 0, 4}));
  EXPECT_EQ(choices.weights[0], 0.5f);
  EXPECT_TRUE(std::isnan(choices.weights[2]) && std::isnan(choices.weights[3]));
  EXPECT_FALSE(std::isnan(choices.weights[4]));
}

struct Experts {
  Experts(Backend& backend, int count, int hidden, int size, DType dtype, DType down_dtype) {
    std::mt19937 random(7);
    for (int e = 0; e < count; ++e) {
      const TestWeight gate(TestMatrix::Random(size, hidden, random), dtype);
      const TestWeight up(TestMatrix::Random(size, hidden, random), dtype);
      const TestWeight out(TestMatrix::Random(hidden, size, random), down_dtype);
      weights.gate_up.push_back(*backend.Pack({{gate.view()}, {up.view()}}, PartOrder::kGateAndUp));
      weights.down.push_back(*backend.Pack({{out.view()}}, PartOrder::kConcatenated));
    }
  }
  ExpertWeights weights;
};

// Checks that every row is the weighted sum of the outputs of its experts for this row alone, added
// in increasing order. Other rows that chose the same experts do not matter.
void ExpectRowsHaveTheBitsTheyHaveAlone(int hidden, int size, DType dtype, DType down_dtype) {
  constexpr int kRows = 40, kExperts = 6, kChosen = 3;
  std::mt19937 random(2);
  for (TestBackend& test : AllBackends()) {
    const Experts experts(*test.backend, kExperts, hidden, size, dtype, down_dtype);
    const TestMatrix x = TestMatrix::Random(kRows, hidden, random);
    TestMatrix logits = TestMatrix::Random(kRows, kExperts, random);
    Choices choices(kRows, kChosen);
    test.backend->ChooseExperts(logits.view(), false, choices.view);
    TestMatrix out(kRows, hidden);
    test.backend->MixExperts(x.view(), choices.view, experts.weights, Activation::kSilu,
                             out.view());
    for (int r = 0; r < kRows; ++r) {
      TestMatrix expected(1, hidden);
      for (int i = r * kChosen; i < (r + 1) * kChosen; ++i) {
        TestMatrix gated(1, size), made(1, hidden);
        const int e = choices.experts[i];
        test.backend->MatMulGated(x.Rows({r}).view(), experts.weights.gate_up[e], Activation::kSilu,
                                  gated.view());
        test.backend->MatMul(gated.view(), experts.weights.down[e], made.view());
        test.backend->AddScaled(made.view(), choices.weights[i], expected.view());
      }
      ASSERT_TRUE(out.SameBits(r, expected, 0)) << test.label << " row " << r;
    }
  }
}

TEST(MixExperts, RowsHaveTheBitsTheyHaveAlone) {
  ExpectRowsHaveTheBitsTheyHaveAlone(70, 33, DType::kBF16, DType::kBF16);
}

// As in files: the two matrices often have different formats, and rows may end within a block of a
// K format.
TEST(MixExperts, RowsHaveTheBitsTheyHaveAloneInBlocks) {
  constexpr DType kFormats[][2] = {{DType::kQ8_0, DType::kQ8_0}, {DType::kQ4K, DType::kQ6K},
                                   {DType::kQ5K, DType::kQ5_1},  {DType::kQ4_0, DType::kQ4_1},
                                   {DType::kQ5_0, DType::kQ3K},  {DType::kQ2K, DType::kIq4Nl},
                                   {DType::kIq4Xs, DType::kF32}};
  for (const auto& [dtype, down_dtype] : kFormats) {
    SCOPED_TRACE(NameOf(dtype));
    ExpectRowsHaveTheBitsTheyHaveAlone(288, 96, dtype, down_dtype);
  }
}

}  // namespace
}  // namespace tandem
