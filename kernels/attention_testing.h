// Shared by the tests of attention on all devices: queries with a cache of their keys and values,
// the expected attention in double, and checks that every device must pass.
#ifndef TANDEM_KERNELS_ATTENTION_TESTING_H_
#define TANDEM_KERNELS_ATTENTION_TESTING_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/kernel_testing.h"

namespace tandem {

struct AttentionShape {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 24;
  int window = 0;
  KvDType dtype = KvDType::kF32;
  float soft_cap = 0.0f;
  int first = 0;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // The first position that row `position` sees.
  int FirstSeen(int position) const {
    return std::max(first, window > 0 ? position - window + 1 : 0);
  }
};

// One row and head of attention in double, and the sizes to which the bounds of rounding errors are
// proportional.
struct ExactAttention {
  std::vector<double> values;  // zeros if the row sees no position
  std::vector<double> sizes;   // the mean of |value|
  std::vector<double> steps;   // the sum of |stored value|, divided by the sum of weights
  double magnitude = 0.0;      // the largest sum |q k| * scale
  double key_size = 0.0;       // the largest sum |k| * scale
  double largest_query = 0.0;
  double largest_scale = 0.0;  // of values in the cache
};

// The bound of an element's rounding error: a part of the element's size, and of its steps.
struct AttentionBound {
  double relative = 0.0;
  double step = 0.0;
};

// The queries of several sequences, and a cache with their keys and values. Cache memory outside of
// positions [0, length), including unused pages, is `garbage`; unused table entries are invalid
// pages. The contents of a sequence depend only on its length.
struct AttentionWorld {
  AttentionWorld(const AttentionShape& shape, std::vector<int> lengths, int page_size,
                 float garbage)
      : shape(shape), lengths(std::move(lengths)), page_size(page_size) {
    for (const int length : this->lengths) {
      std::mt19937 random(1000 + length);
      queries.push_back(TestMatrix::Random(length, shape.num_heads * shape.head_dim, random));
      max_pages = std::max(max_pages, (length + page_size - 1) / page_size);
    }
    FillCache(garbage);
  }

  std::string Describe() const {
    return absl::StrCat(shape.num_heads, " heads of ", shape.head_dim, " window ", shape.window,
                        " first ", shape.first, " length ", lengths[0], " pages of ", page_size);
  }

  // Attends in one call to the last `counts[i]` rows of the first `lengths[i]` tokens of each
  // sequence, and to rows of padding. `table_pages` is the length of page tables, whose remaining
  // entries are garbage; 0 for as many as needed. With `reader`, returns its product of the
  // results, which nothing else reads.
  TestMatrix Attend(Backend& backend, const std::vector<int>& counts,
                    const std::vector<int>& lengths, int num_padding = 0, int table_pages = 0,
                    const PackedWeight* reader = nullptr) {
    std::vector<int32_t> starts = {0};
    for (const int count : counts) starts.push_back(starts.back() + count);
    const int rows = starts.back() + num_padding;
    TestMatrix q(rows, shape.num_heads * shape.head_dim);
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int i = 0; i < counts[s]; ++i) {
        std::copy_n(queries[s].row(lengths[s] - counts[s] + i), q.cols(), q.row(starts[s] + i));
      }
    }
    PagedKvView kv = view();
    kv.batch = static_cast<int>(counts.size());
    std::vector<int32_t> tables = page_tables;
    if (table_pages > 0) {
      tables.assign(size_t(kv.batch) * table_pages, 1 << 30);
      for (int s = 0; s < kv.batch; ++s) {
        std::copy_n(page_tables.data() + s * kv.max_pages, kv.max_pages,
                    tables.data() + s * table_pages);
      }
      kv.max_pages = table_pages;
    }
    const Buffer device_cache = UploadTo(backend, cache), device_tables = UploadTo(backend, tables);
    const Buffer device_starts = UploadTo(backend, starts);
    const std::vector<int32_t> plan = backend.PlanRows(
        starts, rows, {shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.dtype});
    const Buffer device_plan = UploadTo(backend, plan);
    const Buffer device_lengths = UploadTo(backend, lengths);
    kv.keys = device_cache.data();
    kv.values = static_cast<uint32_t*>(device_cache.data()) + cache.size() / 2;
    kv.page_tables = static_cast<const int32_t*>(device_tables.data());
    kv.lengths = static_cast<const int32_t*>(device_lengths.data());
    UploadedMatrix out(backend, TestMatrix(rows, q.cols())), device_q(backend, std::move(q));
    backend.Attend(device_q.view(),
                   {static_cast<const int32_t*>(device_starts.data()), kv.batch, rows,
                    static_cast<const int32_t*>(device_plan.data())},
                   kv,
                   {.scale = shape.scale(),
                    .window = shape.window,
                    .first = shape.first,
                    .soft_cap = shape.soft_cap},
                   out.view(), {.weight = reader});
    if (reader == nullptr) return out.Get();
    UploadedMatrix product(backend, TestMatrix(rows, reader->outputs));
    backend.MatMul(out.view(), *reader, product.view());
    return product.Get();
  }
  TestMatrix AttendLast(Backend& backend, int count) { return Attend(backend, {count}, lengths); }
  // Attends to the rows [first, end) of the first sequence, each in its own call.
  TestMatrix Alone(Backend& backend, int first, int end) {
    TestMatrix rows(end - first, shape.num_heads * shape.head_dim);
    for (int t = first; t < end; ++t) {
      const TestMatrix one = Attend(backend, {1}, {t + 1});
      std::copy_n(one.row(0), one.cols(), rows.row(t - first));
    }
    return rows;
  }

  TestKvRow RowAt(int sequence, int position, int kv_head, bool is_key) {
    const int page = page_tables[sequence * max_pages + position / page_size];
    return TestKvRow(view(), is_key, page, kv_head, position % page_size);
  }
  // Replaces all keys and values of the first sequence at `position`.
  void Replace(int position, const std::vector<float>& key, const std::vector<float>& value) {
    for (int h = 0; h < shape.num_kv_heads; ++h) {
      RowAt(0, position, h, true).Put(key.data());
      RowAt(0, position, h, false).Put(value.data());
    }
  }
  void MultiplyQueries(float factor) {
    for (TestMatrix& rows : queries) {
      for (int r = 0; r < rows.rows(); ++r) {
        for (int c = 0; c < rows.cols(); ++c) rows.at(r, c) *= factor;
      }
    }
  }

  // The attention of row `position` of the first sequence, and of head `h`. If `rounds_queries`,
  // the queries are rounded to bf16. The rounding of keys and values does not count, because they
  // are read from the cache.
  ExactAttention Exact(int position, int h, bool rounds_queries = false) {
    const int d = shape.head_dim, g = h / (shape.num_heads / shape.num_kv_heads);
    const int begin = shape.FirstSeen(position);
    const float* const query = queries[0].row(position) + h * d;
    std::vector<float> q(query, query + d);
    for (float& x : q) x = rounds_queries ? Bf16ToFloat(FloatToBf16(x)) : x;
    ExactAttention exact;
    for (const float x : q)
      exact.largest_query = std::max(exact.largest_query, std::abs(double{x}));
    std::vector<double> scores;
    double largest = -INFINITY;
    for (int t = begin; t <= position; ++t) {
      const TestKvRow key = RowAt(0, t, g, true);
      double score = 0.0, terms = 0.0, size = 0.0;
      for (int i = 0; i < d; ++i) {
        score += double{q[i]} * key.value(i);
        terms += std::abs(double{q[i]} * key.value(i));
        size += std::abs(key.value(i));
      }
      score *= shape.scale();
      const double cap = shape.soft_cap;
      scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
      largest = std::max(largest, scores.back());
      exact.magnitude = std::max(exact.magnitude, terms * shape.scale());
      exact.key_size = std::max(exact.key_size, size * shape.scale());
    }
    double total = 0.0;
    for (auto* sum : {&exact.values, &exact.sizes, &exact.steps}) sum->assign(d, 0.0);
    for (int t = begin; t <= position; ++t) {
      const double weight = std::exp(scores[t - begin] - largest);
      total += weight;
      const TestKvRow row = RowAt(0, t, g, false);
      for (int i = 0; i < d; ++i) {
        exact.values[i] += weight * row.value(i);
        exact.sizes[i] += std::abs(weight * row.value(i));
        exact.steps[i] += std::abs(row.stored(i));
      }
      exact.largest_scale = std::max(exact.largest_scale, double{row.scale()});
    }
    for (auto* sum : {&exact.values, &exact.sizes, &exact.steps}) {
      for (double& x : *sum) x /= begin > position ? 1.0 : total;
    }
    return exact;
  }

  AttentionShape shape;
  std::vector<int> lengths;
  int page_size;
  int max_pages = 0;
  std::vector<TestMatrix> queries;
  std::vector<uint32_t> cache;  // keys, then values
  std::vector<int32_t> page_tables;

 private:
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
};

// Expects that the last `count` rows are as exact as `bound` says for a row at a position.
inline void ExpectNearExact(
    Backend& backend, AttentionWorld& world, int count, bool rounds_queries,
    absl::FunctionRef<AttentionBound(const ExactAttention&, int position)> bound) {
  const int d = world.shape.head_dim;
  const TestMatrix out = world.AttendLast(backend, count);
  for (int r = 0; r < count; ++r) {
    const int position = world.lengths[0] - count + r;
    for (int h = 0; h < world.shape.num_heads; ++h) {
      const ExactAttention exact = world.Exact(position, h, rounds_queries);
      const AttentionBound error = bound(exact, position);
      for (int i = 0; i < d; ++i) {
        ASSERT_NEAR(out.at(r, h * d + i), exact.values[i],
                    error.relative * (exact.sizes[i] + std::abs(exact.values[i])) +
                        error.step * exact.steps[i])
            << world.Describe() << " row " << r << " head " << h << " dim " << i;
      }
    }
  }
}

// Expects that `out` has the bits of the last rows of `rows`.
inline void ExpectLastRows(const TestMatrix& out, const TestMatrix& rows,
                           const AttentionWorld& world) {
  for (int r = 0; r < out.rows(); ++r) {
    ASSERT_TRUE(out.SameBits(r, rows, rows.rows() - out.rows() + r))
        << world.Describe() << " row " << r << " of " << out.rows();
  }
}

// Expects that the last three rows do not read the pages that are completely before `position`.
inline void ExpectReadsNoPageBefore(Backend& backend, AttentionWorld& world, int position) {
  const TestMatrix expected = world.AttendLast(backend, 3);
  std::fill_n(world.page_tables.begin(), position / world.page_size, 1 << 30);
  EXPECT_TRUE(world.AttendLast(backend, 3).SameBits(expected)) << world.Describe();
}

// Expects that the last `count` rows ignore the positions before shape.first. A draft head's cache
// does not have a row for the first token. Rows that see no position are zeros.
inline void ExpectIgnoresPositionsBeforeTheFirst(Backend& backend, AttentionWorld& world,
                                                 int count) {
  const int length = world.lengths[0], first = world.shape.first;
  const std::vector<float> spoilt(world.shape.head_dim, NAN);
  const TestMatrix before = world.AttendLast(backend, count);
  for (int t = 0; t < std::min(first, length); ++t) world.Replace(t, spoilt, spoilt);
  const TestMatrix after = world.AttendLast(backend, count);
  EXPECT_TRUE(after.SameBits(before)) << world.Describe();
  for (int r = 0; r < count; ++r) {
    const float* const row = after.row(r);
    const bool sees_any = length - count + r >= first;
    EXPECT_NE(sees_any, std::all_of(row, row + after.cols(),
                                    [](float x) { return std::bit_cast<uint32_t>(x) == 0; }))
        << world.Describe() << " row " << r;
    EXPECT_TRUE(std::all_of(row, row + after.cols(), [](float x) { return std::isfinite(x); }))
        << world.Describe() << " row " << r;
  }
  if (first >= length) return;
  world.Replace(first, std::vector<float>(world.shape.head_dim, 1.0f), spoilt);
  EXPECT_TRUE(std::isnan(world.Attend(backend, {1}, {first + 1}).at(0, 0))) << world.Describe();
}

// Expects that this key and value at `position`, with a NaN, reach the rows from there on, and not
// the rows before, among the last `count`.
inline void ExpectNanReachesOnlyLaterRows(Backend& backend, AttentionWorld& world, int count,
                                          int position, const std::vector<float>& key,
                                          const std::vector<float>& value) {
  const TestMatrix before = world.AttendLast(backend, count);
  world.Replace(position, key, value);
  const TestMatrix after = world.AttendLast(backend, count);
  for (int r = 0; r < count; ++r) {
    if (world.lengths[0] - count + r < position) {
      ASSERT_TRUE(after.SameBits(r, before, r)) << world.Describe() << " row " << r;
      continue;
    }
    for (int c = 0; c < after.cols(); ++c) {
      ASSERT_TRUE(std::isnan(after.at(r, c))) << world.Describe() << " row " << r << ", " << c;
    }
  }
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_ATTENTION_TESTING_H_
