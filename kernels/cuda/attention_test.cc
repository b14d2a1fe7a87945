// Attention over the paged cache on a device: its results, and that a row's bits do not depend on
// the other rows or on the pages.
#include <algorithm>
#include <cmath>

#include "kernels/attention_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

using World = AttentionWorld;
using Shape = AttentionShape;

// A score errs by at most head_dim + 2 roundings of sum |q k| * scale. This error enters its weight
// as a factor, as do the 2 units in the last place of exp and the scaling when 8 tiles and position
// / 256 splits are merged. The sum of values has `position` roundings, plus those of merging. All
// of this counts twice for the quotient. With a cache of bf16, the expected queries are rounded to
// bf16; tensor cores truncate sums instead of rounding them, which doubles these errors, and
// weights are rounded by 2^-9. Scales of int8 add two roundings to a score and one to a value. A
// cap reduces a score's error and adds 5 roundings.
AttentionBound BoundOf(const Shape& shape, const ExactAttention& exact, int position) {
  const bool rounds = shape.dtype == KvDType::kBF16;
  const double merges = 8.0 + position / 256;
  const double unit = rounds ? 0x1p-23 : 0x1p-24;
  const int scales = shape.dtype == KvDType::kInt8 ? 2 : 0;
  return {.relative = 2.0 * (unit * ((shape.head_dim + 10 + scales) * exact.magnitude +
                                     8.0 * (2.0 + merges) + position + merges + 5 + scales) +
                             (rounds ? 0x1p-9 : 0.0))};
}

class Attention : public CudaTest, public testing::WithParamInterface<KvDType> {
 protected:
  // Attends to the last `count` rows, and expects that those before `row` have the same bits
  // whether the keys and values from `row` on are small or large. Tensor cores align terms by
  // exponent, and 0 times a large number counts with a large exponent.
  void ExpectLargeLaterRowsChangeNothing(World& world, int row, int count) {
    const Shape& shape = world.shape;
    const int length = world.lengths[0], first_large = length - count + row;
    for (const auto& [spread, large] : {std::pair{0x1p-40f, 1e30f},
                                        {0x1p-20f, 3e38f},
                                        {1.0f, 3e38f},
                                        {0x1p-126f, 3.0f},
                                        {0x1p-126f, 1000.0f}}) {
      TestMatrix results[2] = {TestMatrix(1, 1), TestMatrix(1, 1)};
      for (const bool is_large : {false, true}) {
        std::mt19937 random(5);
        for (int t = 0; t < length; ++t) {
          for (int h = 0; h < shape.num_kv_heads; ++h) {
            TestMatrix value = TestMatrix::Random(1, shape.head_dim, random, spread);
            TestMatrix key = TestMatrix::Random(1, shape.head_dim, random);
            for (int i = 0; is_large && t >= first_large && i < shape.head_dim; ++i) {
              value.at(0, i) = key.at(0, i) = i % 3 == 0 ? -large : large;
            }
            world.RowAt(0, t, h, true).Put(key.row(0));
            world.RowAt(0, t, h, false).Put(value.row(0));
          }
        }
        results[is_large ? 1 : 0] = world.AttendLast(backend(), count);
      }
      for (int r = 0; r < row; ++r) {
        EXPECT_TRUE(results[1].SameBits(r, results[0], r))
            << "row " << r << " of " << count << " spread " << spread << " large " << large;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryKvDType, Attention, testing::ValuesIn(kAllKvDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(Attention, MatchesDoublePrecision) {
  const Shape shapes[] = {{1, 1, 4, 0},
                          {6, 2, 10, 5},
                          {14, 2, 64, 0},
                          {4, 1, 128, 40},
                          {9, 3, 50, 33},
                          {2, 1, 200, 0},
                          {6, 2, 10, 5, KvDType::kF32, 0.5f},
                          {4, 2, 64, 0, KvDType::kF32, 20.0f},
                          {6, 2, 10, 5, KvDType::kF32, 0.5f, 1},
                          {9, 3, 50, 33, KvDType::kF32, 0.0f, 31},
                          {14, 2, 64, 0, KvDType::kF32, 0.0f, 297}};
  for (Shape shape : shapes) {
    for (const int length : {1, 33, 300}) {
      shape.dtype = GetParam();
      World world(shape, {length}, length % 2 == 0 ? 16 : 5, NAN);
      ExpectNearExact(backend(), world, std::min(length, 5), shape.dtype == KvDType::kBF16,
                      [&](const ExactAttention& exact, int position) {
                        return BoundOf(shape, exact, position);
                      });
    }
  }
}

// Queries of zeros give equal weights, and sums of integers are exact (for int8, because the scale
// is 1), so one position too few or too many is detected.
TEST_P(Attention, EqualScoresGiveTheMeanOfVisibleValues) {
  for (const int head_dim : {6, 160}) {
    for (const int window : {0, 37}) {
      const Shape shape = {4, 2, head_dim, window, GetParam()};
      World world(shape, {290}, 4, NAN);
      world.MultiplyQueries(0.0f);
      const auto value = [](int t, int g, int i) {
        return i == 0 ? 127.0f : float((t * 7 + g * 5 + i * 3) % 127);
      };
      for (int t = 0; t < 290; ++t) {
        for (int g = 0; g < 2; ++g) {
          std::vector<float> row(head_dim);
          for (int i = 0; i < head_dim; ++i) row[i] = value(t, g, i);
          world.RowAt(0, t, g, false).Put(row.data());
        }
      }
      const TestMatrix out = world.AttendLast(backend(), 11);
      for (int r = 0; r < 11; ++r) {
        const int end = 290 - 11 + r + 1, begin = window > 0 ? end - window : 0;
        for (int h = 0; h < 4; ++h) {
          for (int i = 0; i < head_dim; ++i) {
            float sum = 0.0f;
            for (int t = begin; t < end; ++t) sum += value(t, h / 2, i);
            ASSERT_EQ(out.at(r, h * head_dim + i), sum / static_cast<float>(end - begin))
                << "row " << r << " head " << h << " element " << i << " window " << window;
          }
        }
      }
    }
  }
}

// Compares calls of 1 to 9 rows, at edges of tiles and pages, with various page sizes and garbage,
// with single rows in pages of 16.
TEST_P(Attention, RowBitsDoNotDependOnOtherRowsPagesOrGarbage) {
  for (const auto& [window, seen_from] : {std::pair{0, 0}, {7, 0}, {0, 1}, {7, 30}}) {
    const Shape shape = {2, 1, 10, window, GetParam(), 0.0f, seen_from};
    for (const int length : {1, 17, 32, 65}) {
      World plain(shape, {length}, 16, 0.0f);
      const TestMatrix alone = plain.Alone(backend(), std::max(0, length - 9), length);
      for (const int page_size : {1, 4, 16}) {
        World world(shape, {length}, page_size, page_size == 4 ? 1e30f : NAN);
        for (int count = 1; count <= std::min(9, length); count += page_size == 16 ? 1 : 4) {
          ExpectLastRows(world.AttendLast(backend(), count), alone, world);
        }
      }
    }
  }
}

// Splits end at 256 and 512. One block for all splits and one block for each give the same bits,
// and so do tables with many more entries.
TEST_P(Attention, RowsAtSplitEdgesHaveTheSameBitsAsAlone) {
  for (const auto& [window, first] : {std::pair{0, 0}, {256, 0}, {0, 1}, {300, 256}, {0, 510}}) {
    const Shape shape = {2, 1, 6, window, GetParam(), 0.0f, first};
    for (const int length : {257, 514}) {
      World world(shape, {length}, 16, NAN);
      const TestMatrix alone = world.Alone(backend(), length - 9, length);
      for (const int count : {5, 9}) {
        for (const int table_pages : {0, 100, 20000}) {
          SCOPED_TRACE(table_pages);
          ExpectLastRows(world.Attend(backend(), {count}, {length}, 0, table_pages), alone, world);
        }
      }
    }
  }
}

// Splits have blocks of their own in steps of 1 to 5 of them, or of all, or one block has all. The
// steps are merged in the same order.
TEST_P(Attention, BitsDoNotDependOnTheNumberOfSplitsInAStep) {
  auto& cuda = dynamic_cast<CudaBackend&>(backend());
  for (const auto& [window, head_dim] : {std::pair{0, 6}, {700, 200}}) {
    const Shape shape = {2, 1, head_dim, window, GetParam()};
    const std::vector<int> lengths = {1290, 300};
    World world(shape, lengths, 16, NAN);
    const TestMatrix expected = world.Attend(backend(), {5, 2}, lengths, 1);
    const int64_t split_bytes = int64_t{4} * expected.rows() * shape.num_heads * (head_dim + 2);
    for (const int slots : {0, 3, 4, 5, 7}) {
      SCOPED_TRACE(slots);
      cuda.LimitSplitParts(slots * split_bytes);
      const TestMatrix got = world.Attend(backend(), {5, 2}, lengths, 1);
      for (int r = 0; r < got.rows(); ++r) EXPECT_TRUE(got.SameBits(r, expected, r)) << "row " << r;
    }
    cuda.LimitSplitParts(kSplitPartsBytes);
  }
}

TEST_P(Attention, BatchedSequencesHaveTheSameBitsAsAlone) {
  const Shape shape = {6, 2, 16, 0, GetParam()};
  const std::vector<int> lengths = {40, 3, 300, 17};
  World world(shape, lengths, 4, NAN);
  const std::vector<int> counts = {5, 0, 9, 1};
  const TestMatrix out = world.Attend(backend(), counts, lengths, 3);
  int row = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (counts[s] == 0) continue;
    World alone(shape, {lengths[s]}, 16, 0.0f);
    const TestMatrix expected = alone.AttendLast(backend(), counts[s]);
    for (int r = 0; r < counts[s]; ++r, ++row) {
      EXPECT_TRUE(out.SameBits(row, expected, r)) << "sequence " << s << " row " << r;
    }
  }
  for (; row < out.rows(); ++row) EXPECT_EQ(out.at(row, 0), 0.0f) << "padding was written";
}

// NaN in a later row, for example of a draft, does not affect the rows before it.
TEST_P(Attention, NanInLaterRowsDoesNotAffectEarlierRows) {
  for (const int length : {20, 260}) {
    World world({4, 2, 12, 0, GetParam()}, {length}, 16, NAN);
    std::vector<float> spoilt(12, 0.5f);
    spoilt[length == 20 ? 4 : 7] = NAN;  // in either half of a word of bf16
    ExpectNanReachesOnlyLaterRows(backend(), world, 5, length - 2, spoilt, spoilt);
  }
}

TEST_P(Attention, LargeNumbersInLaterRowsDoNotAffectEarlierRows) {
  for (const int device : {0, 1}) {
    if (!Open(device)) continue;
    World world({4, 2, 12, 0, GetParam()}, {85}, 16, NAN);
    ExpectLargeLaterRowsChangeNothing(world, 3, 5);
    World rare({2, 1, 40, 7, GetParam()}, {290}, 16, NAN);
    ExpectLargeLaterRowsChangeNothing(rare, 4, 9);
  }
}

TEST_P(Attention, ReadsNoPageBeforeTheWindow) {
  for (const int page_size : {4, 16}) {
    World world({2, 1, 16, 20, GetParam()}, {100}, page_size, NAN);
    ExpectReadsNoPageBefore(backend(), world, 100 - 3 - 20 + 1);
  }
}

TEST_P(Attention, IgnoresPositionsBeforeTheFirst) {
  for (const auto& [length, first] : {std::pair{5, 1}, {20, 17}, {20, 20}, {300, 298}, {9, 300}}) {
    World world({4, 2, 12, 0, GetParam(), 0.0f, first}, {length}, 16, NAN);
    ExpectIgnoresPositionsBeforeTheFirst(backend(), world, 5);
  }
}

// The scores are far apart, so that only the largest counts.
TEST_P(Attention, LargeScoresDoNotOverflow) {
  World world({2, 1, 8, 0, GetParam()}, {50}, 16, NAN);
  world.MultiplyQueries(1e4f);
  const TestMatrix out = world.AttendLast(backend(), 2);
  for (int c = 0; c < out.cols(); ++c) EXPECT_TRUE(std::isfinite(out.at(1, c)));
}

// ---- Prompts ----

// Enough rows for the prompt kernel (HasPrompts), on a device with one SM like the host's.
class PromptAttention : public Attention {
 protected:
  // `out` has the last `count` rows of sequence `s` from row `first` on. Expects that several of
  // them have the same bits as in calls of five rows.
  void ExpectBitsOfFew(World& world, size_t s, const TestMatrix& out, int first, int count) {
    World one(world.shape, {world.lengths[s]}, 16, 0.0f);
    const int length = world.lengths[s];
    for (const int end : {length, length - 1, length - count + 5, length - count / 2}) {
      if (length - end + 5 > count) continue;
      const TestMatrix few = one.Attend(backend(), {5}, {end});
      for (int r = 0; r < 5; ++r) {
        const int row = first + count - (length - end) - 5 + r;
        EXPECT_TRUE(out.SameBits(row, few, r))
            << world.Describe() << " sequence " << s << " row " << row;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(OnTensorCores, PromptAttention, testing::Values(KvDType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(PromptAttention, RowsHaveTheSameBitsAsInSmallCalls) {
  struct Case {
    Shape shape;
    int length, count, page_size;
  };
  const Case cases[] = {{{8, 2, 24, 0}, 70, 70, 16},
                        {{8, 2, 24, 40}, 300, 90, 5},
                        {{7, 1, 128, 0}, 290, 40, 4},
                        {{2, 2, 66, 0}, 530, 80, 16},
                        {{12, 1, 16, 256}, 530, 30, 16},
                        {{3, 1, 5, 1}, 60, 60, 1},
                        {{8, 2, 24, 0, KvDType::kF32, 0.0f, 1}, 70, 70, 16},
                        {{8, 2, 24, 40, KvDType::kF32, 0.0f, 45}, 100, 90, 5},
                        {{8, 2, 24, 0, KvDType::kF32, 0.0f, 400}, 70, 70, 16}};
  for (Case one : cases) {
    one.shape.dtype = GetParam();
    World world(one.shape, {one.length}, one.page_size, NAN);
    ExpectBitsOfFew(world, 0, world.AttendLast(backend(), one.count), 0, one.count);
  }
}

TEST_P(PromptAttention, BatchedRowsHaveTheSameBitsAsInSmallCalls) {
  const std::vector<int> lengths = {80, 9, 300, 40, 600};
  const std::vector<int> counts = {80, 5, 100, 40, 5};
  World world({8, 2, 20, 0, GetParam()}, lengths, 16, NAN);
  const TestMatrix out = world.Attend(backend(), counts, lengths, 3);
  int first = 0;
  for (size_t s = 0; s < lengths.size(); first += counts[s++]) {
    ExpectBitsOfFew(world, s, out, first, counts[s]);
  }
  for (int row = first; row < out.rows(); ++row) {
    EXPECT_EQ(out.at(row, 0), 0.0f) << "padding was written";
  }
}

// The sequences next to the prompts attend in steps of one split.
TEST_P(PromptAttention, BatchedRowsHaveTheSameBitsInSteps) {
  const std::vector<int> lengths = {80, 9, 600};
  World world({8, 2, 20, 0, GetParam()}, lengths, 16, NAN);
  const TestMatrix expected = world.Attend(backend(), {80, 5, 5}, lengths, 3);
  const int64_t rows = int64_t{3} * CeilDiv(kPromptVectors - 1, 4);
  dynamic_cast<CudaBackend&>(backend()).LimitSplitParts(rows * 8 * 22 * 4 * 3);
  const TestMatrix got = world.Attend(backend(), {80, 5, 5}, lengths, 3);
  for (int r = 0; r < got.rows(); ++r) EXPECT_TRUE(got.SameBits(r, expected, r)) << "row " << r;
}

// Enough rows to fill any device.
TEST_P(PromptAttention, RowsHaveTheSameBitsAsInSmallCallsOnAnyDevice) {
  World world({32, 8, 8, 0, GetParam()}, {208, 300}, 16, NAN);
  World alone({32, 8, 8, 0, GetParam()}, {208}, 16, NAN);
  ExpectBitsOfFew(alone, 0, alone.AttendLast(backend(), 208), 0, 208);
  const TestMatrix out = world.Attend(backend(), {208, 5}, {208, 300});
  ExpectBitsOfFew(world, 0, out, 0, 208);
  ExpectBitsOfFew(world, 1, out, 208, 5);
}

// Padding makes the rows count as many. A sequence with too few rows for a prompt's block still
// gets one.
TEST_P(PromptAttention, AttendsToFewRowsWithMuchPadding) {
  World world({8, 2, 24, 0, GetParam()}, {10}, 16, NAN);
  ExpectBitsOfFew(world, 0, world.Attend(backend(), {10}, {10}, 20), 0, 10);
}

// In the second shape, the vectors of a warp belong to one row, so that no tile has an edge for
// them.
TEST_P(PromptAttention, NanInLaterRowsDoesNotAffectEarlierRows) {
  for (const Shape& shape : {Shape{8, 2, 24, 0, GetParam()}, {16, 1, 24, 0, GetParam()}}) {
    World world(shape, {100}, 16, NAN);
    std::vector<float> spoilt(24, 0.5f);
    spoilt[7] = NAN;
    ExpectNanReachesOnlyLaterRows(backend(), world, 100, 41, spoilt, spoilt);
  }
}

TEST_P(PromptAttention, IgnoresPositionsBeforeTheFirst) {
  World world({8, 2, 24, 0, GetParam(), 0.0f, 3}, {100}, 16, NAN);
  ExpectIgnoresPositionsBeforeTheFirst(backend(), world, 100);
}

TEST_P(PromptAttention, LargeNumbersInLaterRowsDoNotAffectEarlierRows) {
  for (const Shape& shape : {Shape{8, 2, 24, 0, GetParam()}, {16, 1, 24, 30, GetParam()}}) {
    World world(shape, {100}, 16, NAN);
    ExpectLargeLaterRowsChangeNothing(world, 41, 100);
  }
}

using AttentionLimits = CudaTest;
TEST_F(AttentionLimits, RefusesHeadsThatAreTooLong) {
  UploadedMatrix q(backend(), TestMatrix(1, 258)), out(backend(), TestMatrix(1, 258));
  PagedKvView kv;
  kv.batch = kv.max_pages = kv.page_size = kv.num_kv_heads = 1;
  kv.head_dim = 258;
  backend().Attend(q.view(), {nullptr, 1, 1}, kv, {}, out.view(), {});
  const absl::Status status = backend().Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("heads of 258"), std::string::npos);
  EXPECT_TRUE(backend().Synchronize().ok());  // the failure was cleared
}

// Groups of heads are the second number of a grid.
TEST_F(AttentionLimits, RefusesTooManyHeads) {
  constexpr int kHeads = LaunchShape::kMaxYz + 1;
  const AttentionSizes sizes = {kHeads, kHeads, 2, KvDType::kF32};
  UploadedMatrix q(backend(), TestMatrix(1, 2 * kHeads)), out(backend(), TestMatrix(1, 2 * kHeads));
  const std::vector<int32_t> starts = {0, 1};
  const Buffer plan = Upload(backend().PlanRows(starts, 1, sizes));
  PagedKvView kv;
  kv.batch = kv.max_pages = kv.page_size = 1;
  kv.num_kv_heads = kHeads;
  kv.head_dim = 2;
  const RaggedRows rows = {
      .batch = 1, .num_rows = 1, .plan = static_cast<const int32_t*>(plan.data())};
  backend().Attend(q.view(), rows, kv, {}, out.view(), {});
  const absl::Status status = backend().Synchronize();
  EXPECT_EQ(std::string(status.message()), "cuda:0: attending: a kernel has too many blocks");
}

}  // namespace
}  // namespace tandem::cuda
