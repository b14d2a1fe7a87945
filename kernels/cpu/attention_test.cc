// Tests of attention over the paged cache: results are right, and the bits of a row depend on
// nothing else in the pass.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/cpu/kv_rows.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

struct Shape {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 24;
  int window = 0;
  KvDType dtype = KvDType::kF32;
  float soft_cap = 0.0f;
  int first = 0;

  AttentionForm form(float scale) const {
    return {.scale = scale, .window = window, .first = first, .soft_cap = soft_cap};
  }
  // The first position that row `position` sees.
  int FirstSeen(int position) const {
    return std::max(first, window > 0 ? position - window + 1 : 0);
  }
};

// Sequences with random queries, the cache that holds their keys and values, and the expected
// attention in double.
class World {
 public:
  // `garbage` fills all parts of the cache that do not belong to a position in [0, length),
  // including unused pages.
  World(const Shape& shape, std::vector<int> lengths, int page_size, float garbage, uint32_t seed)
      : shape_(shape), lengths_(std::move(lengths)), page_size_(page_size) {
    std::mt19937 random(seed);
    for (const int length : lengths_) {
      queries_.push_back(TestMatrix::Random(length, shape.num_heads * shape.head_dim, random));
      max_pages_ = std::max(max_pages_, (length + page_size - 1) / page_size);
    }
    FillCache(garbage, random);
  }

  // Attends with the last `counts[i]` of each sequence's first `lengths[i]` tokens, in one call.
  TestMatrix Attend(Backend& backend, const std::vector<int>& counts,
                    const std::vector<int>& lengths) {
    std::vector<int32_t> starts = {0};
    for (const int count : counts) starts.push_back(starts.back() + count);
    TestMatrix q(starts.back(), shape_.num_heads * shape_.head_dim);
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int i = 0; i < counts[s]; ++i) {
        std::copy_n(queries_[s].row(lengths[s] - counts[s] + i), q.cols(), q.row(starts[s] + i));
      }
    }
    TestMatrix out(q.rows(), q.cols());
    const int batch = static_cast<int>(counts.size());
    PagedKvView kv = view();
    kv.lengths = lengths.data();
    kv.batch = batch;
    backend.Attend(q.view(), {starts.data(), batch, starts.back()}, kv, shape_.form(scale()),
                   out.view());
    return out;
  }
  TestMatrix AttendLast(Backend& backend, int count) { return Attend(backend, {count}, lengths_); }

  // Invalidates the table entries of the pages that are completely before `position`.
  void ForgetPagesBefore(int position) {
    std::fill_n(page_tables_.begin(), position / page_size_, 1 << 30);
  }

  // Replaces a token's value by NaN, in the form in which the backend would cache it.
  void SpoilValue(int sequence, int position, float key_element = 1.0f) {
    const std::vector<float> key(shape_.head_dim, key_element), value(shape_.head_dim, NAN);
    const int page = page_tables_[sequence * max_pages_ + position / page_size_];
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      StoreKvRow(view(), page, h, position % page_size_, key.data(), value.data());
    }
  }
  double LargestValue() {
    double largest = 0.0;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      for (int t = 0; t < lengths_[i]; ++t) {
        for (int h = 0; h < shape_.num_kv_heads; ++h) {
          const TestKvRow row = RowAt(static_cast<int>(i), t, h, false);
          for (int d = 0; d < shape_.head_dim; ++d) {
            largest = std::max(largest, std::abs(row.value(d)));
          }
        }
      }
    }
    return largest;
  }
  void MultiplyQueries(float factor) {
    for (TestMatrix& queries : queries_) {
      for (int r = 0; r < queries.rows(); ++r) {
        for (int c = 0; c < queries.cols(); ++c) queries.at(r, c) *= factor;
      }
    }
  }

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  // Computes the expected row `position` of head `h`, and the tolerance of f32 for each element.
  //
  // Keys and values are read from the cache, so their rounding does not count. The error of a score
  // is at most head_dim + 3 roundings of sum |q k| * scale (one for the key's scale). It is a
  // factor of the weight, as are exp's 2 units in the last place (2^-22) and the rescaling at each
  // of the `position / 32` tiles and `position / 256` chunks. The error of the largest score is
  // common to all weights and to their sum, and cancels. The sum of values then has `position`
  // roundings, and one for the value's scale. Twice all that covers the quotient. A cap reduces the
  // error of a score and adds 5 roundings.
  void Expect(int sequence, int position, int h, std::vector<double>* expected,
              std::vector<double>* tolerance, const TestBackend& test) {
    const int d = shape_.head_dim, g = h / (shape_.num_heads / shape_.num_kv_heads);
    const int begin = shape_.FirstSeen(position);
    const float* q = queries_[sequence].row(position) + h * d;
    std::vector<double> scores;
    double largest = -INFINITY, magnitude = 0.0, key_size = 0.0;
    for (int t = begin; t <= position; ++t) {
      double score = 0.0, terms = 0.0, size = 0.0;
      const TestKvRow key = RowAt(sequence, t, g, true);
      for (int i = 0; i < d; ++i) {
        const double term = double{q[i]} * key.value(i);
        score += term;
        terms += std::abs(term);
        size += std::abs(key.value(i));
      }
      score *= scale();
      const double cap = shape_.soft_cap;
      scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
      largest = std::max(largest, scores.back());
      magnitude = std::max(magnitude, terms * scale());
      key_size = std::max(key_size, size * scale());
    }
    double total = 0.0;
    expected->assign(d, 0.0);
    std::vector<double> sizes(d, 0.0), steps(d, 0.0);
    double largest_scale = 0.0;
    for (int t = begin; t <= position; ++t) {
      const double weight = std::exp(scores[t - begin] - largest);
      total += weight;
      const TestKvRow row = RowAt(sequence, t, g, false);
      for (int i = 0; i < d; ++i) {
        const double value = weight * row.value(i);
        (*expected)[i] += value;
        sizes[i] += std::abs(value);
        steps[i] += std::abs(row.stored(i));
      }
      largest_scale = std::max(largest_scale, double{row.scale()});
    }
    const double eps = 0x1p-24;
    double relative =
        2.0 * eps *
        ((d + 10) * magnitude + 8.0 * (2.0 + position / 32 + position / 256) + position + 5);
    // If queries and weights are rounded to bf16, each by 2^-9 of its size: the error of a score is
    // 2^-9 * sum |q k| * scale, which is a factor of the weight, and the weight is rounded as well.
    if (test.rounds_to_bf16 && shape_.dtype == KvDType::kBF16) {
      relative += 2.0 * 0x1p-9 * (magnitude + 1);
    }
    // If they are rounded to integers: queries by half a step, which is their largest element /
    // 32512, and by eight roundings of scales and sums. Weights times the scales of their values
    // are rounded by half a step, which is e * (the largest scale of the tile) / 65535 if the
    // reference, which is at most the largest score, has weight 1.
    double step = 0.0;
    if (test.rounds_to_int16 && shape_.dtype == KvDType::kInt8) {
      double largest_query = 0.0;
      for (int i = 0; i < d; ++i) largest_query = std::max(largest_query, std::abs(double{q[i]}));
      relative += 2.0 * (0.5 * largest_query / 32512 * key_size + 8 * eps * (magnitude + 1));
      step = 2.0 * 0.5 * std::exp(1.0) * largest_scale / 65535;
    }
    tolerance->assign(d, 0.0);
    if (begin > position) return;
    for (int i = 0; i < d; ++i) {
      (*expected)[i] /= total;
      (*tolerance)[i] =
          relative * (sizes[i] / total + std::abs((*expected)[i])) + step * steps[i] / total;
    }
  }

  const Shape& shape() const { return shape_; }

 private:
  PagedKvView view() {
    PagedKvView kv;
    kv.keys = cache_.data();
    kv.values = cache_.data() + cache_.size() / 2;
    kv.page_tables = page_tables_.data();
    kv.max_pages = max_pages_;
    kv.page_size = page_size_;
    kv.page_stride = page_stride_;
    kv.group_stride = kKvGroupPages * page_stride_ + 5;
    kv.num_kv_heads = shape_.num_kv_heads;
    kv.head_dim = shape_.head_dim;
    kv.dtype = shape_.dtype;
    kv.head_stride = page_size_ * KvRowWords(kv.dtype, kv.head_dim) + 3;
    return kv;
  }
  TestKvRow RowAt(int sequence, int position, int kv_head, bool is_key) {
    const int page = page_tables_[sequence * max_pages_ + position / page_size_];
    return TestKvRow(view(), is_key, page, kv_head, position % page_size_);
  }

  // Pages are in random order, with unused pages between them. Unused table entries are invalid.
  void FillCache(float garbage, std::mt19937& random) {
    const int row_words = KvRowWords(shape_.dtype, shape_.head_dim);
    page_stride_ = shape_.num_kv_heads * (int64_t{page_size_} * row_words + 3) + 7;
    const int sequences = static_cast<int>(lengths_.size());
    const int num_pages = 2 * sequences * max_pages_ + 1;
    const uint32_t word = shape_.dtype == KvDType::kF32 ? std::bit_cast<uint32_t>(garbage)
                                                        : FloatToBf16(garbage) * 0x10001u;
    cache_.assign(2 * num_pages * (page_stride_ + 1), word);
    std::vector<int> free_pages = Iota(num_pages);
    std::shuffle(free_pages.begin(), free_pages.end(), random);
    page_tables_.assign(size_t(sequences) * max_pages_, 1 << 30);
    for (int s = 0; s < sequences; ++s) {
      std::mt19937 content(s + 17 * lengths_[s]);  // independent of the pages
      for (int t = 0; t < lengths_[s]; ++t) {
        if (t % page_size_ == 0) {
          page_tables_[s * max_pages_ + t / page_size_] = free_pages.back();
          free_pages.pop_back();
        }
        for (int h = 0; h < shape_.num_kv_heads; ++h) {
          const TestMatrix rows = TestMatrix::Random(2, shape_.head_dim, content);
          RowAt(s, t, h, true).Put(rows.row(0));
          RowAt(s, t, h, false).Put(rows.row(1));
        }
      }
    }
  }

  Shape shape_;
  std::vector<int> lengths_;
  int page_size_;
  int max_pages_ = 0;
  int64_t page_stride_ = 0;
  std::vector<TestMatrix> queries_;
  std::vector<uint32_t> cache_;  // keys, then values
  std::vector<int32_t> page_tables_;
};

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
                          {4, 1, 128, 0, KvDType::kF32, 0.0f, 290}};
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (Shape shape : shapes) {
      for (const int length : {1, 2, 31, 32, 33, 64, 100, 300}) {
        shape.dtype = dtype;
        World world(shape, {length}, length % 2 == 0 ? 16 : 5, NAN, length);
        const int count = std::min(length, 20);
        const TestMatrix out = world.AttendLast(*test.backend, count);
        std::vector<double> expected, tolerance;
        for (int r = 0; r < count; ++r) {
          for (int h = 0; h < shape.num_heads; ++h) {
            world.Expect(0, length - count + r, h, &expected, &tolerance, test);
            for (int i = 0; i < shape.head_dim; ++i) {
              ASSERT_NEAR(out.at(r, h * shape.head_dim + i), expected[i], tolerance[i])
                  << test.label << " length " << length << " row " << r << " head " << h << " of "
                  << shape.num_heads << " dim " << shape.head_dim << " window " << shape.window
                  << " first " << shape.first;
            }
          }
        }
      }
    }
  }
}

// Passes of 1 to 9 rows around every edge of tiles and pages, with several page sizes and kinds of
// garbage, have the same bits as single rows in pages of 16.
TEST_P(AttentionOf, RowBitsDoNotDependOnOtherRowsPagesOrGarbage) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const auto& [window, first] :
         {std::pair{0, 0}, {1, 0}, {7, 0}, {32, 0}, {40, 0}, {0, 1}, {7, 1}, {40, 18}}) {
      const Shape shape = {4, 2, 24, window, dtype, 0.0f, first};
      for (const int length : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 97}) {
        World plain(shape, {length}, 16, 0.0f, length);
        std::vector<TestMatrix> alone;  // by position
        for (int t = 0; t < length; ++t) alone.push_back(plain.Attend(*test.backend, {1}, {t + 1}));
        for (const int page_size : {1, 3, 4, 16}) {
          for (const float garbage : {NAN, 1e30f}) {
            World world(shape, {length}, page_size, garbage, length);
            for (int count = 1; count <= std::min(9, length); ++count) {
              const TestMatrix out = world.AttendLast(*test.backend, count);
              for (int r = 0; r < count; ++r) {
                ASSERT_TRUE(out.SameBits(r, alone[length - count + r], 0))
                    << test.label << " window " << window << " first " << first << " length "
                    << length << " pages of " << page_size << " garbage " << garbage << " row " << r
                    << " of " << count;
              }
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
        World plain(shape, {length}, 16, NAN, length);
        TestMatrix alone(9, 6 * 16);
        for (int r = 0; r < 9; ++r) {
          const TestMatrix one = plain.Attend(*test.backend, {1}, {length - 8 + r});
          std::copy_n(one.row(0), one.cols(), alone.row(r));
        }
        for (const int page_size : {16, 32, 48, 20}) {
          World world(shape, {length}, page_size, NAN, length);
          for (const int count : {1, 2, 5, 9}) {
            const TestMatrix out = world.AttendLast(*test.backend, count);
            for (int r = 0; r < count; ++r) {
              ASSERT_TRUE(out.SameBits(r, alone, 9 - count + r))
                  << test.label << " window " << window << " first " << first << " length "
                  << length << " pages of " << page_size << " row " << r << " of " << count;
            }
          }
        }
      }
    }
  }
}

TEST_P(AttentionOf, ReadsNoPageBeforeTheWindow) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const int page_size : {4, 16}) {
      const Shape shape = {2, 1, 16, 20, dtype};
      World world(shape, {100}, page_size, NAN, 3);
      const TestMatrix expected = world.AttendLast(*test.backend, 3);
      world.ForgetPagesBefore(100 - 3 - 20 + 1);
      EXPECT_TRUE(world.AttendLast(*test.backend, 3).SameBits(expected)) << test.label;
    }
  }
}

TEST_P(AttentionOf, ReadsNoPageBeforeTheFirstPosition) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const int page_size : {4, 16}) {
      World world({2, 1, 16, 0, dtype, 0.0f, 50}, {100}, page_size, NAN, 3);
      const TestMatrix expected = world.AttendLast(*test.backend, 3);
      world.ForgetPagesBefore(50);
      EXPECT_TRUE(world.AttendLast(*test.backend, 3).SameBits(expected)) << test.label;
    }
  }
}

// A draft head's cache does not have a row for the first token.
TEST_P(AttentionOf, IgnoresThePositionsBeforeTheFirst) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const auto& [window, first] : {std::pair{0, 1}, {3, 1}, {0, 40}, {300, 270}}) {
      World world({4, 2, 24, window, dtype, 0.0f, first}, {300}, 16, NAN, 5);
      const TestMatrix before = world.AttendLast(*test.backend, 300);
      for (int position = 0; position < first; ++position) world.SpoilValue(0, position, NAN);
      const TestMatrix after = world.AttendLast(*test.backend, 300);
      for (int r = 0; r < 300; ++r) {
        ASSERT_TRUE(after.SameBits(r, before, r)) << test.label << " row " << r;
        for (int c = 0; c < after.cols(); ++c) {
          if (r < first) {
            ASSERT_EQ(std::bit_cast<uint32_t>(after.at(r, c)), 0u) << test.label << " row " << r;
          } else {
            ASSERT_TRUE(std::isfinite(after.at(r, c))) << test.label << " row " << r;
          }
        }
      }
      world.SpoilValue(0, first);
      EXPECT_TRUE(std::isnan(world.Attend(*test.backend, {1}, {first + 1}).at(0, 0)));
    }
  }
}

// For a row, later tokens of its sequence are garbage too.
TEST_P(AttentionOf, PassesInChunksOfEverySizeHaveTheSameBits) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const int window : {0, 37}) {
      const int length = 150;
      World world({8, 2, 40, window, dtype}, {length}, 16, NAN, 7);
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
    for (const int spoilt : {31, 64, 290}) {  // last and first of a tile, in another chunk
      World world({4, 2, 24, 0, dtype}, {300}, 16, 0.0f, 5);
      const TestMatrix before = world.AttendLast(*test.backend, 300);
      world.SpoilValue(0, spoilt);
      const TestMatrix after = world.AttendLast(*test.backend, 300);
      for (int r = 0; r < 300; ++r) {
        if (r < spoilt) {
          ASSERT_TRUE(after.SameBits(r, before, r)) << test.label << " row " << r;
          continue;
        }
        for (int c = 0; c < after.cols(); ++c) {
          ASSERT_TRUE(std::isnan(after.at(r, c))) << test.label << " row " << r << " column " << c;
        }
      }
    }
  }
}

// Scores may be so large that neighbouring f32 numbers are far apart. Scores above the reference
// still get the right weights, and outputs are not larger than the largest value, except for the
// rounding of weights to 2^-9.
TEST_P(AttentionOf, OutputsAreBoundedByTheValuesForScoresOfAnySize) {
  for (TestBackend& test : OneOfEachIsa(dtype)) {
    for (const float factor : {0x1p-110f, 1e3f, 3e7f, 1e12f}) {
      World world({4, 2, 24, 0, dtype}, {300}, 16, NAN, 6);
      world.MultiplyQueries(factor);
      const double largest = world.LargestValue();
      const TestMatrix out = world.AttendLast(*test.backend, 100);
      for (int r = 0; r < out.rows(); ++r) {
        for (int c = 0; c < out.cols(); ++c) {
          ASSERT_LE(std::abs(out.at(r, c)), 1.01 * largest) << test.label << " factor " << factor;
        }
      }
    }
  }
}

TEST_P(AttentionOf, BatchesAndThreadsDoNotChangeBits) {
  const std::vector<int> lengths = {70, 1, 33, 128, 5};
  const std::vector<int> counts = {5, 1, 33, 2, 0};
  for (const std::string& isa : CpuIsas()) {
    World world({6, 2, 32, 0, dtype}, lengths, 4, NAN, 11);
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
        World world({heads, 1, 32, window, dtype, 0.0f, first}, lengths, 16, NAN, 12);
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
    World world({71, 1, 8, 0}, {40}, 16, NAN, 13);
    const TestMatrix out = world.AttendLast(*test.backend, 3);
    std::vector<double> expected, tolerance;
    for (int h = 0; h < 71; ++h) {
      world.Expect(0, 38, h, &expected, &tolerance, test);
      for (int i = 0; i < 8; ++i) ASSERT_NEAR(out.at(1, h * 8 + i), expected[i], tolerance[i]);
    }
  }
}

}  // namespace
}  // namespace tandem
