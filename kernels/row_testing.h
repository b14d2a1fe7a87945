// Shared by the tests of operations on single rows on all devices: checks that every device must
// pass, and a cache to which rows of several sequences are written.
#ifndef TANDEM_KERNELS_ROW_TESTING_H_
#define TANDEM_KERNELS_ROW_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/kernel_testing.h"

namespace tandem {

// Embeds `ids` over rows of sevens.
inline TestMatrix Embed(Backend& backend, const ConstMatrixView& table,
                        const std::vector<int32_t>& ids) {
  Buffer storage;
  const auto view = backend.Import(table, &storage);
  TANDEM_CHECK(view.ok());
  const Buffer device_ids = UploadTo(backend, ids);
  TestMatrix sevens(static_cast<int>(ids.size()), table.cols);
  for (int r = 0; r < sevens.rows(); ++r) std::fill_n(sevens.row(r), sevens.cols(), 7.0f);
  UploadedMatrix out(backend, sevens);
  backend.Embed(static_cast<const int32_t*>(device_ids.data()), *view, out.view(), {});
  return out.Get();
}

inline TestMatrix RmsNorm(Backend& backend, const TestMatrix& x, const TestMatrix& weight,
                          float epsilon) {
  UploadedMatrix in(backend, x), scale(backend, weight);
  UploadedMatrix out(backend, TestMatrix(x.rows(), x.cols()));
  backend.RmsNorm(in.view(), scale.data(), epsilon, out.view());
  const TestMatrix got = out.Get();
  backend.RmsNorm(in.view(), scale.data(), epsilon, in.view());
  EXPECT_TRUE(in.Get().SameBits(got)) << "in place, " << x.cols() << " columns";
  return got;
}

inline void ExpectGathersRows(Backend& backend, int cols) {
  std::mt19937 random(2);
  const TestMatrix x = TestMatrix::Random(9, cols, random);
  const std::vector<int32_t> indices = {8, 0, 5, 5};
  UploadedMatrix in(backend, x), out(backend, TestMatrix(4, cols));
  const Buffer device_indices = UploadTo(backend, indices);
  backend.GatherRows(in.view(), static_cast<const int32_t*>(device_indices.data()), out.view());
  EXPECT_TRUE(out.Get().SameBits(x.Rows({8, 0, 5, 5})));
}

// Rows that cover all of ArgMax's results.
inline void ExpectArgMax(Backend& backend, int cols, std::mt19937& random) {
  TestMatrix x = TestMatrix::Random(7, cols, random);
  const int last = cols - 1, middle = cols / 2;
  x.at(0, last) = 9.0f;
  x.at(1, middle) = x.at(1, last) = 9.0f;
  x.at(2, middle) = NAN;
  x.at(3, last) = INFINITY;
  for (int c = 0; c < cols; ++c) x.at(4, c) = -INFINITY;
  for (int c = 0; c < cols; ++c) x.at(5, c) = c == last ? -3.0f : -INFINITY;
  x.at(6, 0) = 8.0f;
  UploadedMatrix in(backend, x);
  std::vector<int32_t> largest(7, 77);
  const Buffer device_largest = UploadTo(backend, largest);
  backend.ArgMax(in.view(), static_cast<int32_t*>(device_largest.data()));
  EXPECT_EQ(DownloadFrom<int32_t>(backend, device_largest),
            (std::vector<int32_t>{last, middle, -1, -1, -1, last, 0}))
      << cols;
}

// Expects norms within this number of roundings.
inline void ExpectRmsNormNearExact(Backend& backend, int cols, int roundings,
                                   std::mt19937& random) {
  const TestMatrix x = TestMatrix::Random(3, cols, random, 3.0f);
  const TestMatrix weight = TestMatrix::Random(1, cols, random);
  const TestMatrix out = RmsNorm(backend, x, weight, 1e-5f);
  for (int r = 0; r < 3; ++r) {
    double squares = 0.0;
    for (int c = 0; c < cols; ++c) squares += double{x.at(r, c)} * x.at(r, c);
    for (int c = 0; c < cols; ++c) {
      const double expected =
          x.at(r, c) / std::sqrt(squares / cols + double{1e-5f}) * weight.at(0, c);
      ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 0x1p-24 * roundings)
          << "cols " << cols;
    }
  }
}

// Expects that the norm of each row of x has the same bits as alone. Only row `nan_row` is NaN.
inline void ExpectRmsNormRowsAsAlone(Backend& backend, int rows, int nan_row) {
  std::mt19937 random(4);
  TestMatrix x = TestMatrix::Random(rows, 300, random);
  x.at(nan_row, 299) = NAN;
  const TestMatrix weight = TestMatrix::Random(1, 300, random);
  const auto norm = [&](const TestMatrix& some) { return RmsNorm(backend, some, weight, 1e-6f); };
  const TestMatrix out = norm(x);
  for (int r = 0; r < rows; ++r) ASSERT_EQ(std::isnan(out.at(r, 0)), r == nan_row);
  ExpectRowsAsAlone(x, {rows}, random, norm);
}

// Expects differences from the mean, whose sum errs by this number of roundings.
inline void ExpectSubtractsMean(Backend& backend, int cols, int roundings, std::mt19937& random) {
  const TestMatrix x = TestMatrix::Random(5, cols, random, 3.0f);
  const auto subtract = [&](const TestMatrix& rows) {
    UploadedMatrix in(backend, rows), out(backend, rows);
    backend.SubtractMean(in.view(), out.view());
    backend.SubtractMean(in.view(), in.view());
    EXPECT_TRUE(in.Get().SameBits(out.Get()));
    return out.Get();
  };
  const TestMatrix out = subtract(x);
  for (int r = 0; r < 5; ++r) {
    double sum = 0.0, sizes = 0.0;
    for (int c = 0; c < cols; ++c) sum += x.at(r, c), sizes += std::abs(x.at(r, c));
    for (int c = 0; c < cols; ++c) {
      const double expected = x.at(r, c) - sum / cols;
      ASSERT_NEAR(out.at(r, c), expected, 0x1p-24 * (std::abs(expected) + roundings * sizes / cols))
          << "cols " << cols;
    }
  }
  ExpectRowsAsAlone(x, {5}, random, subtract);
}

// Expects tanh within this number of roundings, and that a NaN stays in its place.
inline void ExpectScalesAndCaps(Backend& backend, int cols, float cap, int roundings,
                                std::mt19937& random) {
  TestMatrix x = TestMatrix::Random(4, cols, random, 5.0f);
  x.at(2, cols / 2) = NAN;
  UploadedMatrix in_place(backend, x);
  backend.ScaleAndCap(1.25f, cap, in_place.view());
  const TestMatrix out = in_place.Get();
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < cols; ++c) {
      if (r == 2 && c == cols / 2) {
        ASSERT_TRUE(std::isnan(out.at(r, c)));
      } else if (cap == 0.0f) {
        ASSERT_EQ(out.at(r, c), x.at(r, c) * 1.25f);
      } else {
        const double expected = cap * std::tanh(double{x.at(r, c)} * 1.25 / cap);
        ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * roundings * 0x1p-24)
            << "cap " << cap << " of " << x.at(r, c);
      }
    }
  }
}

inline void ExpectAddsRoundedProducts(Backend& backend, int cols, std::mt19937& random) {
  const TestMatrix x = TestMatrix::Random(3, cols, random);
  const TestMatrix before = TestMatrix::Random(3, cols, random);
  UploadedMatrix from(backend, x), sum(backend, before);
  backend.AddScaled(from.view(), 0.22f, sum.view());
  const TestMatrix got = sum.Get();
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < cols; ++c) {
      const float product = x.at(r, c) * 0.22f;
      ASSERT_EQ(got.at(r, c), before.at(r, c) + product);
    }
  }
}

// Three sequences, of 5, 0 and `last_rows` rows, whose last positions are 8, 3 and 299; then rows
// of padding.
struct Ragged {
  Ragged(int last_rows, int num_padding)
      : starts{0, 5, 5, 5 + last_rows}, num_rows(5 + last_rows + num_padding) {}

  // Without the padding, in host memory.
  RaggedRows rows() const { return {starts.data(), 3, starts[3]}; }
  int sequence(int r) const { return r < 5 ? 0 : 2; }
  int position(int r) const { return r < 5 ? 4 + r : 300 - starts[3] + r; }

  std::vector<int32_t> starts;
  std::vector<int32_t> lengths = {9, 4, 300};
  int num_rows;
};

// Calls `check` with the computed cosine or sine, the angle as an f32 product, and the magnitude.
// Rows of padding must stay zeros.
inline void ExpectRotaryAngles(
    Backend& backend, const Ragged& ragged,
    absl::FunctionRef<void(float got, bool is_sine, float angle, float magnitude)> check) {
  // Three tables. The sequences use the second, the third and the first.
  const std::vector<float> frequencies = {0.5f, 0.2f,        0.1f, 0.05f,   0.0f,   //
                                          1.0f, 0.31622776f, 0.1f, 0.0316f, 1e-4f,  //
                                          2.0f, 2.0f,        2.0f, 2.0f,    2.0f};
  const std::vector<float> magnitudes = {1.5f, 1.5f, 1.5f, 1.0f, 2.0f};
  const std::vector<int32_t> tables = {1, 2, 0};
  const Buffer starts = UploadTo(backend, ragged.starts);
  const std::vector<int32_t> planned = backend.PlanRows(ragged.starts, ragged.num_rows, {});
  const Buffer plan = UploadTo(backend, planned);
  const Buffer lengths = UploadTo(backend, ragged.lengths);
  const Buffer device_frequencies = UploadTo(backend, frequencies);
  const Buffer device_magnitudes = UploadTo(backend, magnitudes);
  const Buffer device_tables = UploadTo(backend, tables);
  UploadedMatrix angles(backend, TestMatrix(ragged.num_rows, 10));
  backend.RotaryAngles({static_cast<const int32_t*>(starts.data()), 3, ragged.num_rows,
                        static_cast<const int32_t*>(plan.data())},
                       static_cast<const int32_t*>(lengths.data()),
                       {.inverse_frequencies = static_cast<const float*>(device_frequencies.data()),
                        .magnitudes = static_cast<const float*>(device_magnitudes.data()),
                        .of_sequence = static_cast<const int32_t*>(device_tables.data())},
                       angles.view());
  const TestMatrix got = angles.Get();
  for (int r = 0; r < ragged.starts[3]; ++r) {
    for (int i = 0; i < 5; ++i) {
      const float angle =
          static_cast<float>(ragged.position(r)) * frequencies[5 * tables[ragged.sequence(r)] + i];
      check(got.at(r, i), false, angle, magnitudes[i]);
      check(got.at(r, 5 + i), true, angle, magnitudes[i]);
    }
  }
  for (int r = ragged.starts[3]; r < ragged.num_rows; ++r) EXPECT_EQ(got.at(r, 0), 0.0f);
}

// A cache full of a pattern that is never written, so that writes can be counted. Its pages of 4
// positions are in reverse order.
struct RaggedCache {
  static constexpr int kPageSize = 4, kPages = 80;
  static constexpr uint32_t kUntouched = 0x80808080;  // int8 -128, and a subnormal
  RaggedCache(KvDType dtype, int kv_heads, int head_dim)
      : dtype(dtype),
        kv_heads(kv_heads),
        head_dim(head_dim),
        stride(int64_t{kPageSize} * kv_heads * KvRowWords(dtype, head_dim) + 5),
        keys(kPages * 3 * stride, kUntouched),
        values(kPages * 3 * stride, kUntouched) {
    for (int i = 0; i < 3 * kPages; ++i) tables.push_back(3 * kPages - 1 - i);
  }
  PagedKvView view(const Ragged& ragged) {
    PagedKvView kv;
    kv.keys = keys.data();
    kv.values = values.data();
    kv.page_tables = tables.data();
    kv.lengths = ragged.lengths.data();
    kv.batch = 3;
    kv.max_pages = kPages;
    kv.page_size = kPageSize;
    kv.page_stride = stride;
    kv.group_stride = kKvGroupPages * stride;
    kv.num_kv_heads = kv_heads;
    kv.head_dim = head_dim;
    kv.dtype = dtype;
    kv.head_stride = kPageSize * KvRowWords(dtype, head_dim);
    return kv;
  }
  TestKvRow RowAt(const Ragged& ragged, int r, int kv_head, bool is_key) {
    const int position = ragged.position(r);
    const int page = tables[ragged.sequence(r) * kPages + position / kPageSize];
    return TestKvRow(view(ragged), is_key, page, kv_head, position % kPageSize);
  }
  int64_t num_touched() const {
    const auto count = [](const std::vector<uint32_t>& words) {
      return static_cast<int64_t>(words.size()) -
             std::count(words.begin(), words.end(), kUntouched);
    };
    return count(keys) + count(values);
  }

  KvDType dtype;
  int kv_heads, head_dim;
  int64_t stride;
  std::vector<uint32_t> keys, values;
  std::vector<int32_t> tables;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_TESTING_H_
