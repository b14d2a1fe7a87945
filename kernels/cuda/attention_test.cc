// Attention over the paged cache on a device: its results, and that a row's bits do not depend on
// the other rows or on the pages.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

struct Shape {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 24;
  int window = 0;
  KvDType dtype = KvDType::kF32;
  float soft_cap = 0.0f;
  int first = 0;

  // The first position that row `position` sees.
  int FirstSeen(int position) const {
    return std::max(first, window > 0 ? position - window + 1 : 0);
  }
};

// The queries of several sequences, and a cache with their keys and values. Cache memory outside of
// positions [0, length) is `garbage`; the ends of page tables are invalid pages.
struct World {
  World(const Shape& shape, std::vector<int> lengths, int page_size, float garbage)
      : shape(shape), lengths(std::move(lengths)), page_size(page_size) {
    for (const int length : this->lengths) {
      std::mt19937 random(1000 + length);
      queries.push_back(TestMatrix::Random(length, shape.num_heads * shape.head_dim, random));
      max_pages = std::max(max_pages, (length + page_size - 1) / page_size);
    }
    FillCache(garbage);
  }

  PagedKvView view() {
    PagedKvView kv;
    kv.keys = cache.data();
    kv.values = cache.data() + cache.size() / 2;
    kv.page_tables = page_tables.data();
    kv.batch = static_cast<int>(lengths.size());
    kv.max_pages = max_pages;
    kv.page_size = page_size;
    kv.head_stride = page_size * KvRowWords(shape.dtype, shape.head_dim) + 3;
    kv.page_stride = shape.num_kv_heads * kv.head_stride + 7;
    kv.group_stride = kKvGroupPages * kv.page_stride + 5;
    kv.num_kv_heads = shape.num_kv_heads;
    kv.head_dim = shape.head_dim;
    kv.dtype = shape.dtype;
    return kv;
  }
  TestKvRow RowAt(int sequence, int position, int kv_head, bool is_key) {
    const int page = page_tables[sequence * max_pages + position / page_size];
    return TestKvRow(view(), is_key, page, kv_head, position % page_size);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

  // Fills pages in random order, with unused pages between them.
  void FillCache(float garbage) {
    const int sequences = static_cast<int>(lengths.size());
    const int num_pages = 2 * sequences * max_pages + 1;
    const uint32_t word = shape.dtype == KvDType::kF32 ? std::bit_cast<uint32_t>(garbage)
                                                       : FloatToBf16(garbage) * 0x10001u;
    cache.assign(2 * (num_pages / kKvGroupPages + 1) * view().group_stride, word);
    std::vector<int> free_pages = Iota(num_pages);
    std::mt19937 random(page_size);
    std::shuffle(free_pages.begin(), free_pages.end(), random);
    page_tables.assign(size_t(sequences) * max_pages, 1 << 30);
    for (int s = 0; s < sequences; ++s) {
      std::mt19937 content(17 * lengths[s]);  // independent of the pages
      for (int t = 0; t < lengths[s]; ++t) {
        if (t % page_size == 0) {
          page_tables[s * max_pages + t / page_size] = free_pages.back();
          free_pages.pop_back();
        }
        for (int h = 0; h < shape.num_kv_heads; ++h) {
          const TestMatrix rows = TestMatrix::Random(2, shape.head_dim, content);
          RowAt(s, t, h, true).Put(rows.row(0));
          RowAt(s, t, h, false).Put(rows.row(1));
        }
      }
    }
  }

  Shape shape;
  std::vector<int> lengths;
  int page_size;
  int max_pages = 0;
  std::vector<TestMatrix> queries;
  std::vector<uint32_t> cache;  // keys, then values
  std::vector<int32_t> page_tables;
};

// Computes the expected row `position` of head `h`, and the tolerance of f32, for each element.
//
// A score errs by at most head_dim + 2 roundings of sum |q k| * scale. This error enters its weight
// as a factor, as do the 2 units in the last place of exp and the scaling when 8 tiles and position
// / 256 splits are merged. The sum of values has `position` roundings, plus those of merging. All
// of this counts twice for the quotient. With a cache of bf16, the expected queries are rounded to
// bf16; tensor cores truncate sums instead of rounding them, which doubles these errors, and
// weights are rounded by 2^-9. Scales of int8 add two roundings to a score and one to a value. A
// cap reduces a score's error and adds 5 roundings.
void Expect(World& world, int sequence, int position, int h, std::vector<double>* expected,
            std::vector<double>* tolerance) {
  const Shape& shape = world.shape;
  const int d = shape.head_dim, g = h / (shape.num_heads / shape.num_kv_heads);
  const int begin = shape.FirstSeen(position);
  const bool rounds = shape.dtype == KvDType::kBF16;
  const float* const query = world.queries[sequence].row(position) + h * d;
  std::vector<float> q(query, query + d);
  for (float& x : q) x = rounds ? Bf16ToFloat(FloatToBf16(x)) : x;
  std::vector<double> scores;
  double largest = -INFINITY, magnitude = 0.0;
  for (int t = begin; t <= position; ++t) {
    const TestKvRow key = world.RowAt(sequence, t, g, true);
    double score = 0.0, terms = 0.0;
    for (int i = 0; i < d; ++i) {
      score += double{q[i]} * key.value(i);
      terms += std::abs(double{q[i]} * key.value(i));
    }
    score *= world.scale();
    const double cap = shape.soft_cap;
    scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
    largest = std::max(largest, scores.back());
    magnitude = std::max(magnitude, terms * world.scale());
  }
  double total = 0.0;
  expected->assign(d, 0.0);
  std::vector<double> sizes(d, 0.0);
  for (int t = begin; t <= position; ++t) {
    const double weight = std::exp(scores[t - begin] - largest);
    total += weight;
    const TestKvRow row = world.RowAt(sequence, t, g, false);
    for (int i = 0; i < d; ++i) {
      (*expected)[i] += weight * row.value(i);
      sizes[i] += std::abs(weight * row.value(i));
    }
  }
  const double merges = 8.0 + position / 256;
  const double unit = rounds ? 0x1p-23 : 0x1p-24;
  const int scales = shape.dtype == KvDType::kInt8 ? 2 : 0;
  const double relative = 2.0 * (unit * ((d + 10 + scales) * magnitude + 8.0 * (2.0 + merges) +
                                         position + merges + 5 + scales) +
                                 (rounds ? 0x1p-9 : 0.0));
  tolerance->assign(d, 0.0);
  if (begin > position) return;
  for (int i = 0; i < d; ++i) {
    (*expected)[i] /= total;
    (*tolerance)[i] = relative * (sizes[i] / total + std::abs((*expected)[i]));
  }
}

class Attention : public CudaTest, public testing::WithParamInterface<KvDType> {
 protected:
  // Attends in one call to the last `counts[i]` rows of the first `lengths[i]` tokens of each
  // sequence, and to rows of padding. `table_pages` is the length of page tables, whose remaining
  // entries are garbage; 0 for as many as needed.
  TestMatrix Attend(World& world, const std::vector<int>& counts, const std::vector<int>& lengths,
                    int num_padding = 0, int table_pages = 0) {
    std::vector<int32_t> starts = {0};
    for (const int count : counts) starts.push_back(starts.back() + count);
    const int rows = starts.back() + num_padding;
    TestMatrix q(rows, world.shape.num_heads * world.shape.head_dim);
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int i = 0; i < counts[s]; ++i) {
        std::copy_n(world.queries[s].row(lengths[s] - counts[s] + i), q.cols(),
                    q.row(starts[s] + i));
      }
    }
    PagedKvView kv = world.view();
    kv.batch = static_cast<int>(counts.size());
    std::vector<int32_t> tables = world.page_tables;
    if (table_pages > 0) {
      tables.assign(size_t(kv.batch) * table_pages, 1 << 30);
      for (int s = 0; s < kv.batch; ++s) {
        std::copy_n(world.page_tables.data() + s * kv.max_pages, kv.max_pages,
                    tables.data() + s * table_pages);
      }
      kv.max_pages = table_pages;
    }
    Buffer cache = Upload(world.cache);
    const Buffer device_tables = Upload(tables);
    const Buffer device_starts = Upload(starts);
    const Buffer device_lengths = Upload(std::vector<int32_t>(lengths.begin(), lengths.end()));
    kv.keys = cache.data();
    kv.values = static_cast<uint32_t*>(cache.data()) + world.cache.size() / 2;
    kv.page_tables = static_cast<const int32_t*>(device_tables.data());
    kv.lengths = static_cast<const int32_t*>(device_lengths.data());
    DeviceMatrix device_q(backend(), std::move(q));
    DeviceMatrix out(backend(), TestMatrix(rows, device_q.view().cols));
    backend().Attend(device_q.view(),
                     {static_cast<const int32_t*>(device_starts.data()), kv.batch, rows}, kv,
                     {.scale = world.scale(),
                      .window = world.shape.window,
                      .first = world.shape.first,
                      .soft_cap = world.shape.soft_cap},
                     out.view());
    return out.Get();
  }
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
        results[is_large ? 1 : 0] = AttendLast(world, count);
      }
      for (int r = 0; r < row; ++r) {
        EXPECT_TRUE(results[1].SameBits(r, results[0], r))
            << "row " << r << " of " << count << " spread " << spread << " large " << large;
      }
    }
  }
  TestMatrix AttendLast(World& world, int count) { return Attend(world, {count}, world.lengths); }
  // Attends to row after row, each in its own call.
  TestMatrix Alone(World& world, int first, int end) {
    TestMatrix rows(end - first, world.shape.num_heads * world.shape.head_dim);
    for (int t = first; t < end; ++t) {
      const TestMatrix one = Attend(world, {1}, {t + 1});
      std::copy_n(one.row(0), one.cols(), rows.row(t - first));
    }
    return rows;
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
      const int count = std::min(length, 5);
      const TestMatrix out = AttendLast(world, count);
      std::vector<double> expected, tolerance;
      for (int r = 0; r < count; ++r) {
        for (int h = 0; h < shape.num_heads; ++h) {
          Expect(world, 0, length - count + r, h, &expected, &tolerance);
          for (int i = 0; i < shape.head_dim; ++i) {
            ASSERT_NEAR(out.at(r, h * shape.head_dim + i), expected[i], tolerance[i])
                << "length " << length << " row " << r << " head " << h << " of " << shape.num_heads
                << " dim " << shape.head_dim << " window " << shape.window << " first "
                << shape.first;
          }
        }
      }
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
      for (int r = 0; r < 290; ++r) std::fill_n(world.queries[0].row(r), 4 * head_dim, 0.0f);
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
      const TestMatrix out = AttendLast(world, 11);
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
      const int first = std::max(0, length - 9);
      const TestMatrix alone = Alone(plain, first, length);
      for (const int page_size : {1, 4, 16}) {
        World world(shape, {length}, page_size, page_size == 4 ? 1e30f : NAN);
        for (int count = 1; count <= std::min(9, length); count += page_size == 16 ? 1 : 4) {
          const TestMatrix out = AttendLast(world, count);
          for (int r = 0; r < count; ++r) {
            ASSERT_TRUE(out.SameBits(r, alone, length - first - count + r))
                << "window " << window << " first " << seen_from << " length " << length
                << " pages of " << page_size << " row " << r << " of " << count;
          }
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
      const TestMatrix alone = Alone(world, length - 9, length);
      for (const int count : {5, 9}) {
        for (const int table_pages : {0, 100, 20000}) {
          const TestMatrix out = Attend(world, {count}, {length}, 0, table_pages);
          for (int r = 0; r < count; ++r) {
            ASSERT_TRUE(out.SameBits(r, alone, 9 - count + r))
                << "window " << window << " first " << first << " length " << length << " row " << r
                << " of " << count << " tables of " << table_pages;
          }
        }
      }
    }
  }
}

TEST_P(Attention, BatchedSequencesHaveTheSameBitsAsAlone) {
  const Shape shape = {6, 2, 16, 0, GetParam()};
  const std::vector<int> lengths = {40, 3, 300, 17};
  World world(shape, lengths, 4, NAN);
  const std::vector<int> counts = {5, 0, 9, 1};
  const TestMatrix out = Attend(world, counts, lengths, 3);
  int row = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (counts[s] == 0) continue;
    World alone(shape, {lengths[s]}, 16, 0.0f);
    const TestMatrix expected = AttendLast(alone, counts[s]);
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
    const TestMatrix before = AttendLast(world, 5);
    std::vector<float> spoilt(12, 0.5f);
    spoilt[length == 20 ? 4 : 7] = NAN;  // in either half of a word of bf16
    for (int h = 0; h < 2; ++h) {
      world.RowAt(0, length - 2, h, true).Put(spoilt.data());
      world.RowAt(0, length - 2, h, false).Put(spoilt.data());
    }
    const TestMatrix after = AttendLast(world, 5);
    for (int r = 0; r < 5; ++r) {
      if (r < 3) {
        EXPECT_TRUE(after.SameBits(r, before, r)) << r;
      } else {
        EXPECT_TRUE(std::isnan(after.at(r, 0))) << r;
      }
    }
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
    const TestMatrix expected = AttendLast(world, 3);
    const int first_seen = 100 - 3 - 20 + 1;
    std::fill_n(world.page_tables.begin(), first_seen / page_size, 1 << 30);
    EXPECT_TRUE(AttendLast(world, 3).SameBits(expected));
  }
}

// The cache of a draft head does not have a row for the first token.
TEST_P(Attention, IgnoresPositionsBeforeTheFirst) {
  for (const auto& [length, first] : {std::pair{5, 1}, {20, 17}, {20, 20}, {300, 298}, {9, 300}}) {
    World world({4, 2, 12, 0, GetParam(), 0.0f, first}, {length}, 16, NAN);
    const TestMatrix before = AttendLast(world, 5);
    const std::vector<float> spoilt(12, NAN);
    for (int t = 0; t < std::min(first, length); ++t) {
      for (int h = 0; h < 2; ++h) {
        world.RowAt(0, t, h, true).Put(spoilt.data());
        world.RowAt(0, t, h, false).Put(spoilt.data());
      }
    }
    const TestMatrix after = AttendLast(world, 5);
    EXPECT_TRUE(after.SameBits(before)) << "length " << length << " first " << first;
    for (int r = 0; r < 5; ++r) {
      const bool sees_any = length - 5 + r >= first;
      EXPECT_EQ(sees_any, after.at(r, 3) != 0.0f) << "length " << length << " row " << r;
    }
  }
}

// The scores are far apart, so that only the largest counts.
TEST_P(Attention, LargeScoresDoNotOverflow) {
  World world({2, 1, 8, 0, GetParam()}, {50}, 16, NAN);
  for (int r = 0; r < 50; ++r) {
    for (int c = 0; c < world.queries[0].cols(); ++c) world.queries[0].at(r, c) *= 1e4f;
  }
  const TestMatrix out = AttendLast(world, 2);
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
      const TestMatrix few = Attend(one, {5}, {end});
      for (int r = 0; r < 5; ++r) {
        const int row = first + count - (length - end) - 5 + r;
        EXPECT_TRUE(out.SameBits(row, few, r))
            << "sequence " << s << " row " << row << " head dim " << world.shape.head_dim
            << " window " << world.shape.window << " first " << world.shape.first << " pages of "
            << world.page_size;
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
    ExpectBitsOfFew(world, 0, AttendLast(world, one.count), 0, one.count);
  }
}

TEST_P(PromptAttention, BatchedRowsHaveTheSameBitsAsInSmallCalls) {
  const std::vector<int> lengths = {80, 9, 300, 40, 600};
  const std::vector<int> counts = {80, 5, 100, 40, 5};
  World world({8, 2, 20, 0, GetParam()}, lengths, 16, NAN);
  const TestMatrix out = Attend(world, counts, lengths, 3);
  int first = 0;
  for (size_t s = 0; s < lengths.size(); first += counts[s++]) {
    ExpectBitsOfFew(world, s, out, first, counts[s]);
  }
  for (int row = first; row < out.rows(); ++row) {
    EXPECT_EQ(out.at(row, 0), 0.0f) << "padding was written";
  }
}

// Enough rows to fill any device.
TEST_P(PromptAttention, RowsHaveTheSameBitsAsInSmallCallsOnAnyDevice) {
  World world({32, 8, 8, 0, GetParam()}, {208, 300}, 16, NAN);
  World alone({32, 8, 8, 0, GetParam()}, {208}, 16, NAN);
  ExpectBitsOfFew(alone, 0, AttendLast(alone, 208), 0, 208);
  const TestMatrix out = Attend(world, {208, 5}, {208, 300});
  ExpectBitsOfFew(world, 0, out, 0, 208);
  ExpectBitsOfFew(world, 1, out, 208, 5);
}

// Padding makes the rows count as many. A sequence with too few rows for a prompt's block still
// gets one.
TEST_P(PromptAttention, AttendsToFewRowsWithMuchPadding) {
  World world({8, 2, 24, 0, GetParam()}, {10}, 16, NAN);
  ExpectBitsOfFew(world, 0, Attend(world, {10}, {10}, 20), 0, 10);
}

// In the second shape, the vectors of a warp belong to one row, so that no tile has an edge for
// them.
TEST_P(PromptAttention, NanInLaterRowsDoesNotAffectEarlierRows) {
  for (const Shape& shape : {Shape{8, 2, 24, 0, GetParam()}, {16, 1, 24, 0, GetParam()}}) {
    World world(shape, {100}, 16, NAN);
    const TestMatrix before = AttendLast(world, 100);
    std::vector<float> spoilt(24, 0.5f);
    spoilt[7] = NAN;
    for (int h = 0; h < shape.num_kv_heads; ++h) {
      world.RowAt(0, 41, h, true).Put(spoilt.data());
      world.RowAt(0, 41, h, false).Put(spoilt.data());
    }
    const TestMatrix after = AttendLast(world, 100);
    for (int r = 0; r < 100; ++r) {
      if (r < 41) {
        EXPECT_TRUE(after.SameBits(r, before, r)) << r;
      } else {
        EXPECT_TRUE(std::isnan(after.at(r, 0))) << r;
      }
    }
  }
}

TEST_P(PromptAttention, IgnoresPositionsBeforeTheFirst) {
  World world({8, 2, 24, 0, GetParam(), 0.0f, 3}, {100}, 16, NAN);
  const TestMatrix before = AttendLast(world, 100);
  const std::vector<float> spoilt(24, NAN);
  for (int t = 0; t < 3; ++t) {
    for (int h = 0; h < 2; ++h) {
      world.RowAt(0, t, h, true).Put(spoilt.data());
      world.RowAt(0, t, h, false).Put(spoilt.data());
    }
  }
  const TestMatrix after = AttendLast(world, 100);
  EXPECT_TRUE(after.SameBits(before));
  for (int r = 0; r < 100; ++r) EXPECT_EQ(after.at(r, 0) != 0.0f, r >= 3) << r;
}

TEST_P(PromptAttention, LargeNumbersInLaterRowsDoNotAffectEarlierRows) {
  for (const Shape& shape : {Shape{8, 2, 24, 0, GetParam()}, {16, 1, 24, 30, GetParam()}}) {
    World world(shape, {100}, 16, NAN);
    ExpectLargeLaterRowsChangeNothing(world, 41, 100);
  }
}

using AttentionLimits = CudaTest;
TEST_F(AttentionLimits, RefusesHeadsThatAreTooLong) {
  DeviceMatrix q(backend(), TestMatrix(1, 258)), out(backend(), TestMatrix(1, 258));
  PagedKvView kv;
  kv.batch = kv.max_pages = kv.page_size = kv.num_kv_heads = 1;
  kv.head_dim = 258;
  backend().Attend(q.view(), {nullptr, 1, 1}, kv, {}, out.view());
  const absl::Status status = backend().Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("heads of 258"), std::string::npos);
  EXPECT_TRUE(backend().Synchronize().ok());  // the failure was cleared
}

}  // namespace
}  // namespace tandem::cuda
