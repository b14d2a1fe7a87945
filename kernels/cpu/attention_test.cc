// Tests of attention over the paged cache: results are right, and the bits of a row depend on
// nothing else in the pass.
#include <algorithm>
#include <cmath>
#include <optional>

#include "gtest/gtest.h"
#include "kernels/attention_testing.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

using World = AttentionWorld;
using Shape = AttentionShape;

// The error of a score is at most head_dim + 3 roundings of sum |q k| * scale (one for the key's
// scale). It is a factor of the weight, as are exp's 2 units in the last place (2^-22) and the
// rescaling at each of the `position / 32` tiles and `position / 256` chunks. The error of the
// largest score is common to all weights and to their sum, and cancels. The sum of values then has
// `position` roundings, and one for the value's scale. Twice all that covers the quotient. A cap
// reduces the error of a score and adds 5 roundings.
AttentionBound BoundOf(const TestBackend& test, const Shape& shape, const ExactAttention& exact,
                       int position) {
  const double eps = 0x1p-24;
  AttentionBound bound{.relative = 2.0 * eps *
                                   ((shape.head_dim + 10) * exact.magnitude +
                                    8.0 * (2.0 + position / 32 + position / 256) + position + 5)};
  // If queries and weights are rounded to bf16, each by 2^-9 of its size: the error of a score is
  // 2^-9 * sum |q k| * scale, which is a factor of the weight, and the weight is rounded as well.
  if (test.rounds_to_bf16 && shape.dtype == KvDType::kBF16) {
    bound.relative += 2.0 * 0x1p-9 * (exact.magnitude + 1);
  }
  // If they are rounded to integers: queries by half a step, which is their largest element /
  // 32512, and by eight roundings of scales and sums. Weights times the scales of their values
  // are rounded by half a step, which is e * (the largest scale of the tile) / 65535 if the
  // reference, which is at most the largest score, has weight 1.
  if (test.rounds_to_int16 && shape.dtype == KvDType::kInt8) {
    bound.relative += 2.0 * (0.5 * exact.largest_query / 32512 * exact.key_size +
                             8 * eps * (exact.magnitude + 1));
    bound.step = 2.0 * 0.5 * std::exp(1.0) * exact.largest_scale / 65535;
  }
  return bound;
}

void ExpectNearExact(TestBackend& test, World& world, int count) {
  SCOPED_TRACE(test.label);
  ExpectNearExact(*test.backend, world, count, false,
                  [&](const ExactAttention& exact, int position) {
                    return BoundOf(test, world.shape, exact, position);
                  });
}

// For each instruction set, a backend that keeps queries and weights exact and, if the instruction
// set supports it for a cache of `dtype`, one that rounds them.
std::vector<TestBackend> OneOfEachIsa(KvDType dtype = KvDType::kF32, int threads = 2) {
  std::vector<TestBackend> backends;
  for (const std::string& isa : CpuIsas()) {
    backends.push_back(MakeTestBackend(isa, CpuCompute::kF32, threads));
    TestBackend rounding = MakeTestBackend(isa, CpuCompute::kAuto, threads);
    if ((rounding.rounds_to_bf16 && dtype == KvDType::kBF16) ||
        (rounding.rounds_to_int16 && dtype == KvDType::kInt8)) {
      backends.push_back(std::move(rounding));
    }
  }
  return backends;
}

class AttentionOf : public testing::TestWithParam<KvDType> {
 protected:
  const KvDType dtype = GetParam();
};
INSTANTIATE_TEST_SUITE_P(EveryKvDType, AttentionOf, testing::ValuesIn(kAllKvDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(AttentionOf, MatchesDoublePrecision) {
  const Shape shapes[] = {{4, 2, 24, 0},
                          {1, 1, 4, 0},
                          {3, 1, 8, 0},
                          {6, 2, 10, 5},
                          {2, 2, 16, 0},
                          {14, 2, 64, 0},
                          {4, 1, 128, 40},
                          {9, 3, 50, 33},
                          {4, 2, 24, 0, KvDType::kF32, 0.5f},
                          {6, 2, 10, 5, KvDType::kF32, 20.0f},
                          {4, 2, 24, 0, KvDType::kF32, 0.0f, 1},
                          {6, 2, 10, 5, KvDType::kF32, 0.5f, 1},
                          {9, 3, 50, 33, KvDType::kF32, 0.0f, 90},
                          {4, 1, 128, 0, KvDType::kF32, 0.0f, 290},
                          {1, 1, 514, 0}};
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (Shape shape : shapes) {
      for (const int length : {1, 2, 31, 32, 33, 64, 100, 300}) {
        shape.dtype = dtype;
        World world(shape, {length}, length % 2 == 0 ? 16 : 5, NAN);
        ExpectNearExact(test, world, std::min(length, 20));
      }
    }
  }
}

// Passes of 1 to 9 rows around every edge of tiles and pages, with several page sizes and kinds of
// garbage, have the same bits as single rows in pages of 16.
TEST_P(AttentionOf, RowBitsDoNotDependOnOtherRowsPagesOrGarbage) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const auto& [window, first] :
         {std::pair{0, 0}, {1, 0}, {7, 0}, {32, 0}, {40, 0}, {0, 1}, {7, 1}, {40, 18}}) {
      const Shape shape = {4, 2, 24, window, dtype, 0.0f, first};
      for (const int length : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 97}) {
        World plain(shape, {length}, 16, 0.0f);
        const TestMatrix alone = plain.Alone(*test.backend, std::max(0, length - 9), length);
        for (const int page_size : {1, 3, 4, 16}) {
          for (const float garbage : {NAN, 1e30f}) {
            World world(shape, {length}, page_size, garbage);
            for (int count = 1; count <= std::min(9, length); ++count) {
              ExpectLastRows(world.AttendLast(*test.backend, count), alone, world);
            }
          }
        }
      }
    }
  }
}

// Chunks end at 256 and 512, and the edges of windows are around these positions. Pages of 16, 32
// and 48 are read in place.
TEST_P(AttentionOf, RowBitsAtChunkEdgesDoNotDependOnOtherRows) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const auto& [window, first] : {std::pair{0, 0},
                                        {9, 0},
                                        {255, 0},
                                        {256, 0},
                                        {257, 0},
                                        {0, 1},
                                        {257, 2},
                                        {0, 256},
                                        {0, 510},
                                        {9, 514}}) {
      const Shape shape = {6, 2, 16, window, dtype, 0.0f, first};
      for (const int length : {257, 260, 512, 516}) {
        World plain(shape, {length}, 16, NAN);
        const TestMatrix alone = plain.Alone(*test.backend, length - 9, length);
        for (const int page_size : {16, 32, 48, 20}) {
          World world(shape, {length}, page_size, NAN);
          for (const int count : {1, 2, 5, 9}) {
            ExpectLastRows(world.AttendLast(*test.backend, count), alone, world);
          }
        }
      }
    }
  }
}

TEST_P(AttentionOf, ReadsNoPageBeforeTheWindow) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const int page_size : {4, 16}) {
      World world({2, 1, 16, 20, dtype}, {100}, page_size, NAN);
      ExpectReadsNoPageBefore(*test.backend, world, 100 - 3 - 20 + 1);
    }
  }
}

TEST_P(AttentionOf, ReadsNoPageBeforeTheFirstPosition) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const int page_size : {4, 16}) {
      World world({2, 1, 16, 0, dtype, 0.0f, 50}, {100}, page_size, NAN);
      ExpectReadsNoPageBefore(*test.backend, world, 50);
    }
  }
}

TEST_P(AttentionOf, IgnoresThePositionsBeforeTheFirst) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const auto& [window, first] : {std::pair{0, 1}, {3, 1}, {0, 40}, {300, 270}}) {
      World world({4, 2, 24, window, dtype, 0.0f, first}, {300}, 16, NAN);
      ExpectIgnoresPositionsBeforeTheFirst(*test.backend, world, 300);
    }
  }
}

// For a row, later tokens of its sequence are garbage too.
TEST_P(AttentionOf, PassesInChunksOfEverySizeHaveTheSameBits) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const int window : {0, 37}) {
      const int length = 150;
      World world({8, 2, 40, window, dtype}, {length}, 16, NAN);
      const TestMatrix whole = world.AttendLast(*test.backend, length);
      for (const int chunk : {1, 2, 5, 16, 17, 33, 64, 149}) {
        for (int begin = 0; begin < length; begin += chunk) {
          const int end = std::min(length, begin + chunk);
          const TestMatrix part = world.Attend(*test.backend, {end - begin}, {end});
          for (int r = 0; r < end - begin; ++r) {
            ASSERT_TRUE(part.SameBits(r, whole, begin + r)) << test.label << " chunk " << chunk;
          }
        }
      }
    }
  }
}

TEST_P(AttentionOf, NanValueReachesOnlyTheRowsThatSeeIt) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    SCOPED_TRACE(test.label);
    for (const int spoilt : {31, 64, 290}) {  // last and first of a tile, in another chunk
      World world({4, 2, 24, 0, dtype}, {300}, 16, 0.0f);
      ExpectNanReachesOnlyLaterRows(*test.backend, world, 300, spoilt, std::vector<float>(24, 1.0f),
                                    std::vector<float>(24, NAN));
    }
  }
}

// Scores may be so large that neighbouring f32 numbers are far apart. Scores above the reference
// still get the right weights, and outputs are not larger than the largest value, except for the
// rounding of weights to 2^-9.
TEST_P(AttentionOf, OutputsAreBoundedByTheValuesForScoresOfAnySize) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const float factor : {0x1p-110f, 1e3f, 3e7f, 1e12f}) {
      World world({4, 2, 24, 0, dtype}, {300}, 16, NAN);
      world.MultiplyQueries(factor);
      double largest = 0.0;
      for (int i = 0; i < 300 * 2 * 24; ++i) {
        largest =
            std::max(largest, std::abs(world.RowAt(0, i / 48, i / 24 % 2, false).value(i % 24)));
      }
      const TestMatrix out = world.AttendLast(*test.backend, 100);
      for (int r = 0; r < out.rows(); ++r) {
        for (int c = 0; c < out.cols(); ++c) {
          ASSERT_LE(std::abs(out.at(r, c)), 1.01 * largest) << test.label << " factor " << factor;
        }
      }
    }
  }
}

// Instruction sets form the sums of integers in other ways, but the sums are exact.
TEST(Int8Attention, HasTheSameBitsWithEveryInstructionSetThatRounds) {
  for (const Shape shape : {Shape{4, 2, 24, 0, KvDType::kInt8},
                            {6, 2, 10, 5, KvDType::kInt8},
                            {14, 2, 64, 0, KvDType::kInt8},
                            {1, 1, 512, 40, KvDType::kInt8}}) {
    for (const int length : {1, 33, 300}) {
      World world(shape, {length}, 16, NAN);
      std::optional<TestMatrix> expected;
      for (TestBackend& test : OneOfEachIsa(KvDType::kInt8)) {
        if (!test.rounds_to_int16) continue;
        const TestMatrix out = world.AttendLast(*test.backend, std::min(length, 20));
        if (!expected.has_value()) expected = out;
        EXPECT_TRUE(out.SameBits(*expected)) << test.label << " of " << length;
      }
    }
  }
}

TEST_P(AttentionOf, BatchesAndThreadsDoNotChangeBits) {
  const std::vector<int> lengths = {70, 1, 33, 128, 5};
  const std::vector<int> counts = {5, 1, 33, 2, 0};
  for (const std::string& isa : CpuIsas()) {
    World world({6, 2, 32, 0, dtype}, lengths, 4, NAN);
    TestBackend one = MakeTestBackend(isa, CpuCompute::kAuto, 1);
    const TestMatrix expected = world.Attend(*one.backend, counts, lengths);
    for (const int threads : {2, 3, 9}) {
      TestBackend many = MakeTestBackend(isa, CpuCompute::kAuto, threads);
      ASSERT_TRUE(world.Attend(*many.backend, counts, lengths).SameBits(expected)) << many.label;
    }
    // The first sequence alone.
    const TestMatrix first = world.Attend(*one.backend, {5}, {70});
    for (int r = 0; r < 5; ++r) ASSERT_TRUE(first.SameBits(r, expected, r)) << isa;
  }
}

// With few heads and several sequences, threads share the chunks of a head.
TEST_P(AttentionOf, ThreadsSharingAContextDoNotChangeBits) {
  const std::vector<int> lengths = {1500, 40, 777};
  for (const std::string& isa : CpuIsas()) {
    for (const int heads : {1, 3, 7}) {
      for (const auto& [window, first] : {std::pair{0, 0}, {600, 0}, {0, 1}, {0, 775}}) {
        World world({heads, 1, 32, window, dtype, 0.0f, first}, lengths, 16, NAN);
        TestBackend one = MakeTestBackend(isa, CpuCompute::kAuto, 1);
        const TestMatrix expected = world.Attend(*one.backend, {2, 1, 3}, lengths);
        for (const int threads : {2, 3, 16}) {
          TestBackend many = MakeTestBackend(isa, CpuCompute::kAuto, threads);
          ASSERT_TRUE(world.Attend(*many.backend, {2, 1, 3}, lengths).SameBits(expected))
              << many.label << " heads " << heads << " window " << window << " first " << first;
        }
      }
    }
  }
}

TEST(Attention, HandlesMoreQueryHeadsThanAUnitHolds) {
  for (TestBackend& test : OneOfEachIsa()) {
    World world({71, 1, 8, 0}, {40}, 16, NAN);
    ExpectNearExact(test, world, 3);
  }
}

}  // namespace
}  // namespace tandem
