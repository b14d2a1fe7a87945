// Tests of operations on single rows: embedding, norms, rotation, writes to the cache, exp.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/kv_rows.h"
#include "kernels/kernel_testing.h"

namespace tandem {
namespace {

double UnitsInTheLastPlace(float value, double exact) {
  const float rounded = static_cast<float>(exact);
  const float next = std::nextafter(std::abs(rounded), INFINITY);
  return std::abs(value - exact) / (double{next} - std::abs(rounded));
}

TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  for (const CpuKernels* kernels : RunnableCpuKernels()) {
    double worst = 0.0;
    std::vector<float> x(1001), out(1001);
    for (double first = -103.0; first < 88.7; first += 0.1) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(first + 0.1 * i / 1001.0);
      kernels->exponential(x.data(), static_cast<int>(x.size()), out.data());
      for (size_t i = 0; i < x.size(); ++i) {
        if (x[i] > 88.72f) continue;
        worst = std::max(worst, UnitsInTheLastPlace(out[i], std::exp(double{x[i]})));
      }
    }
    EXPECT_LT(worst, 2.0) << kernels->name;
  }
}

TEST(Exponential, HasTheLimitsOfExp) {
  for (const CpuKernels* kernels : RunnableCpuKernels()) {
    const float x[] = {0.0f,  -0.0f, -INFINITY, INFINITY, -105.0f, -1e30f, 89.0f,
                       1e30f, 1.0f,  0x1p-149f, -3e38f,   NAN,     3e38f};
    const float expected[] = {1.0f, 1.0f, 0.0f, INFINITY, 0.0f, 0.0f, INFINITY, INFINITY};
    float out[std::size(x)];
    kernels->exponential(x, std::size(x), out);
    for (size_t i = 0; i < std::size(expected); ++i) {
      EXPECT_EQ(out[i], expected[i]) << kernels->name << " exp(" << x[i] << ")";
    }
    EXPECT_FLOAT_EQ(out[8], std::exp(1.0f));
    EXPECT_EQ(out[9], 1.0f);
    EXPECT_EQ(out[10], 0.0f);
    EXPECT_TRUE(std::isnan(out[11])) << kernels->name;
    EXPECT_EQ(out[12], INFINITY);
  }
}

TEST(Embed, ConvertsEveryDType) {
  std::mt19937 random(1);
  for (TestBackend& test : AllBackends()) {
    for (const DType dtype : kAllDTypes) {
      TestMatrix values = TestMatrix::Random(50, 37, random);
      values.at(7, 3) = 0x1p-20f;  // subnormal in f16
      values.at(7, 4) = -0.0f;
      const TestWeight table(values, dtype);
      Buffer storage;
      auto view = test.backend->Import(table.view(), &storage);
      ASSERT_TRUE(view.ok());
      const std::vector<int32_t> ids = {7, 0, 49, 7};
      TestMatrix out(4, 37);
      test.backend->Embed(ids.data(), *view, out.view());
      for (int r = 0; r < 4; ++r)
        EXPECT_TRUE(out.SameBits(r, table.values(), ids[r])) << test.label;
    }
  }
}

TEST(GatherRows, CopiesTheIndexedRows) {
  std::mt19937 random(2);
  for (TestBackend& test : AllBackends()) {
    const TestMatrix x = TestMatrix::Random(9, 13, random);
    const std::vector<int32_t> indices = {8, 0, 3, 3};
    TestMatrix out(4, 13);
    test.backend->GatherRows(x.view(), indices.data(), out.view());
    for (int r = 0; r < 4; ++r) EXPECT_TRUE(out.SameBits(r, x, indices[r]));
  }
}

// The sizes cover stretches, whole vectors and the remainder after them.
TEST(ArgMax, TakesTheFirstOfEqualsAndRejectsNanAndInfinity) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 5, 63, 1024, 1025, 5000}) {
      const ArgMaxCase rows(cols, random);
      std::vector<int32_t> largest(rows.x.rows(), 77);
      test.backend->ArgMax(rows.x.view(), largest.data());
      EXPECT_EQ(largest, rows.largest) << cols;
    }
  }
}

// The mean of squares has at most cols / 64 + 8 roundings of positive terms, which the square root
// halves. Then a root, a quotient and two products round.
TEST(RmsNorm, MatchesDoublePrecision) {
  std::mt19937 random(3);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 3, 15, 16, 17, 63, 64, 65, 100, 896, 2048, 2049}) {
      const TestMatrix x = TestMatrix::Random(3, cols, random, 3.0f);
      const TestMatrix weight = TestMatrix::Random(1, cols, random);
      TestMatrix out(3, cols);
      test.backend->RmsNorm(x.view(), weight.row(0), 1e-5f, out.view());
      for (int r = 0; r < 3; ++r) {
        double squares = 0.0;
        for (int c = 0; c < cols; ++c) squares += double{x.at(r, c)} * x.at(r, c);
        for (int c = 0; c < cols; ++c) {
          const double expected =
              x.at(r, c) / std::sqrt(squares / cols + double{1e-5f}) * weight.at(0, c);
          ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * 0x1p-24 * (cols / 64 + 14))
              << test.label << " cols " << cols;
        }
      }
      TestMatrix in_place = x;
      test.backend->RmsNorm(in_place.view(), weight.row(0), 1e-5f, in_place.view());
      EXPECT_TRUE(in_place.SameBits(out));
    }
  }
}

TEST(RmsNorm, RowsHaveTheBitsTheyHaveAloneAndNanStaysInItsRow) {
  std::mt19937 random(4);
  for (TestBackend& test : AllBackends(3)) {
    TestMatrix x = TestMatrix::Random(100, 300, random);
    x.at(50, 299) = NAN;
    const TestMatrix weight = TestMatrix::Random(1, 300, random);
    TestMatrix out(100, 300);
    test.backend->RmsNorm(x.view(), weight.row(0), 1e-6f, out.view());
    for (int r = 0; r < 100; ++r) {
      TestMatrix alone(1, 300);
      test.backend->RmsNorm(x.Rows({r}).view(), weight.row(0), 1e-6f, alone.view());
      ASSERT_TRUE(out.SameBits(r, alone, 0));
      ASSERT_EQ(std::isnan(out.at(r, 0)), r == 50);
    }
  }
}

TEST(SubtractMean, MatchesDoublePrecisionAndRowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 15, 16, 17, 64, 100, 2049}) {
      const TestMatrix x = TestMatrix::Random(5, cols, random, 3.0f);
      TestMatrix out(5, cols);
      test.backend->SubtractMean(x.view(), out.view());
      for (int r = 0; r < 5; ++r) {
        double sum = 0.0, sizes = 0.0;
        for (int c = 0; c < cols; ++c) sum += x.at(r, c), sizes += std::abs(x.at(r, c));
        for (int c = 0; c < cols; ++c) {
          const double expected = x.at(r, c) - sum / cols;
          ASSERT_NEAR(out.at(r, c), expected,
                      0x1p-24 * (std::abs(expected) + (cols / 64 + 8) * sizes / cols))
              << test.label << " cols " << cols;
        }
        TestMatrix alone = x.Rows({r});
        test.backend->SubtractMean(alone.view(), alone.view());
        EXPECT_TRUE(out.SameBits(r, alone, 0));
      }
    }
  }
}

// The error of a cap is tanh's 3 units in the last place, and two roundings.
TEST(ScaleAndCap, MatchesDoublePrecision) {
  std::mt19937 random(7);
  for (TestBackend& test : AllBackends()) {
    for (const float cap : {0.0f, 0.3f, 30.0f}) {
      const TestMatrix x = TestMatrix::Random(4, 1001, random, 5.0f);
      TestMatrix out = x;
      out.at(2, 5) = NAN;
      test.backend->ScaleAndCap(1.25f, cap, out.view());
      EXPECT_TRUE(std::isnan(out.at(2, 5)));
      for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 1001; ++c) {
          if (r == 2 && c == 5) continue;
          const double scaled = double{x.at(r, c)} * 1.25;
          const double expected = cap > 0.0f ? cap * std::tanh(scaled / cap) : scaled;
          ASSERT_NEAR(out.at(r, c), expected, std::abs(expected) * (cap > 0.0f ? 12 : 1) * 0x1p-24)
              << test.label << " cap " << cap << " of " << scaled;
        }
      }
    }
  }
}

TEST(AddScaled, AddsARoundedProduct) {
  std::mt19937 random(8);
  for (TestBackend& test : AllBackends()) {
    const TestMatrix x = TestMatrix::Random(3, 333, random),
                     before = TestMatrix::Random(3, 333, random);
    TestMatrix sum = before;
    test.backend->AddScaled(x.view(), 0.22f, sum.view());
    for (int r = 0; r < 3; ++r) {
      for (int c = 0; c < 333; ++c) {
        const float product = x.at(r, c) * 0.22f;
        ASSERT_EQ(sum.at(r, c), before.at(r, c) + product) << test.label;
      }
    }
  }
}

// Three sequences, of 5, 0 and 300 rows, whose last positions are 8, 3 and 299.
struct Ragged {
  std::vector<int32_t> starts = {0, 5, 5, 305};
  std::vector<int32_t> lengths = {9, 4, 300};
  RaggedRows rows() const { return {starts.data(), 3, 305}; }
  int sequence(int r) const { return r < 5 ? 0 : 2; }
  int position(int r) const { return r < 5 ? 4 + r : r - 5; }
};

TEST(RotaryAngles, AreTheCosinesAndSinesOfF32Products) {
  const Ragged ragged;
  // Three tables. The sequences use the second, the third and the first.
  const std::vector<float> frequencies = {0.5f, 0.2f,        0.1f, 0.05f,   0.0f,   //
                                          1.0f, 0.31622776f, 0.1f, 0.0316f, 1e-4f,  //
                                          2.0f, 2.0f,        2.0f, 2.0f,    2.0f};
  const std::vector<float> magnitudes = {1.5f, 1.5f, 1.5f, 1.0f, 2.0f};
  const std::vector<int32_t> tables = {1, 2, 0};
  for (TestBackend& test : AllBackends()) {
    TestMatrix angles(305, 10);
    test.backend->RotaryAngles(ragged.rows(), ragged.lengths.data(),
                               {.inverse_frequencies = frequencies.data(),
                                .magnitudes = magnitudes.data(),
                                .of_sequence = tables.data()},
                               angles.view());
    for (int r = 0; r < 305; ++r) {
      for (int i = 0; i < 5; ++i) {
        const float angle = static_cast<float>(ragged.position(r)) *
                            frequencies[5 * tables[ragged.sequence(r)] + i];
        ASSERT_EQ(angles.at(r, i), std::cos(angle) * magnitudes[i]);
        ASSERT_EQ(angles.at(r, 5 + i), std::sin(angle) * magnitudes[i]);
      }
    }
  }
}

// A cache full of a pattern that is never written, so that writes can be counted. Its pages of 4
// positions are in reverse order.
struct Cache {
  static constexpr int kPageSize = 4, kPages = 80;
  static constexpr uint32_t kUntouched = 0x80808080;  // int8 -128, and a subnormal
  Cache(KvDType dtype, int kv_heads, int head_dim)
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

// Checks a row in the cache: f32 is exact, and bf16 is rounded to nearest. int8 is within half a
// step and the rounding of the quotient (2 of the 24 bits of up to 127 steps), and exact for the
// largest element.
void ExpectStored(const TestKvRow& stored, KvDType dtype, const float* row, int head_dim) {
  float largest = 0.0f;
  for (int i = 0; i < head_dim; ++i) largest = std::max(largest, std::abs(row[i]));
  if (dtype == KvDType::kInt8) {
    ASSERT_EQ(stored.scale(), largest / 127.0f);
  }
  for (int i = 0; i < head_dim; ++i) {
    if (dtype == KvDType::kF32) {
      ASSERT_EQ(stored.stored(i), row[i]);
    } else if (dtype == KvDType::kBF16) {
      ASSERT_EQ(stored.stored(i), Bf16ToFloat(FloatToBf16(row[i])));
    } else {
      ASSERT_NEAR(stored.stored(i), double{row[i]} / stored.scale(), 0.5 + 127 * 0x1p-22);
      if (std::abs(row[i]) == largest) {
        ASSERT_EQ(stored.stored(i), row[i] > 0 ? 127.0f : -127.0f);
      }
    }
  }
}

class RotateAndCacheAs : public testing::TestWithParam<KvDType> {};
INSTANTIATE_TEST_SUITE_P(EveryKvDType, RotateAndCacheAs, testing::ValuesIn(kAllKvDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(RotateAndCacheAs, RotatesHalvesAndWritesOnlyThePositionsOfItsRows) {
  std::mt19937 random(5);
  const Ragged ragged;
  for (TestBackend& test : AllBackends()) {
    for (const int d : {2, 8, 10, 32, 50, 64}) {
      for (const bool with_norms : {false, true}) {
        const int heads = 3, kv_heads = 2;
        const TestMatrix before = TestMatrix::Random(305, (heads + 2 * kv_heads) * d, random);
        const TestMatrix angles = TestMatrix::Random(305, d, random);
        const TestMatrix norms = TestMatrix::Random(2, d, random);
        TestMatrix qkv = before;
        Cache cache(GetParam(), kv_heads, d);
        HeadNorms head_norms;
        if (with_norms) head_norms = {norms.row(0), norms.row(1), 1e-6f};
        test.backend->RotateAndCache(qkv.view(), angles.view(), head_norms, ragged.rows(),
                                     cache.view(ragged));
        int64_t written = 0;
        for (int r = 0; r < 305; ++r) {
          for (int h = 0; h < heads + 2 * kv_heads; ++h) {
            TestMatrix head(1, d);
            std::copy_n(before.row(r) + h * d, d, head.row(0));
            if (h < heads + kv_heads) {
              if (with_norms) {
                test.backend->RmsNorm(head.view(), norms.row(h < heads ? 0 : 1), 1e-6f,
                                      head.view());
              }
              const TestMatrix x = head;
              for (int i = 0; i < d / 2; ++i) {
                const float cosine = angles.at(r, i), sine = angles.at(r, d / 2 + i);
                const float first = x.at(0, i), second = x.at(0, d / 2 + i);
                const float a = first * cosine, b = second * sine;
                const float c = second * cosine, e = first * sine;
                head.at(0, i) = a - b;
                head.at(0, d / 2 + i) = c + e;
              }
            }
            ASSERT_EQ(std::memcmp(qkv.row(r) + h * d, head.row(0), d * 4), 0)
                << test.label << " dim " << d << " row " << r << " head " << h;
            if (h < heads) continue;
            const bool is_key = h < heads + kv_heads;
            const int g = is_key ? h - heads : h - heads - kv_heads;
            ExpectStored(cache.RowAt(ragged, r, g, is_key), GetParam(), head.row(0), d);
            if (HasFatalFailure()) return;
            written += KvRowWords(GetParam(), d);
          }
        }
        EXPECT_EQ(cache.num_touched(), written);
      }
    }
  }
}

TEST(StoreKvRow, NonFiniteRowsBecomeNanAndTinyRowsZeros) {
  const struct {
    std::vector<float> row;
    bool is_nan;
  } cases[] = {{{1.0f, NAN, 0.0f, 2.0f}, true},
               {{1.0f, -INFINITY, 0.0f, 2.0f}, true},
               {{0.0f, 0.0f, -0.0f, 0.0f}, false},
               {{1e-40f, 0.0f, -1e-42f, 0.0f}, false}};
  for (const auto& [row, is_nan] : cases) {
    Cache cache(KvDType::kInt8, 1, 4);
    const Ragged ragged;
    StoreKvRow(cache.view(ragged), 0, 0, 2, row.data(), row.data());
    for (const bool is_key : {false, true}) {
      const TestKvRow stored(cache.view(ragged), is_key, 0, 0, 2);
      for (int d = 0; d < 4; ++d) {
        EXPECT_EQ(std::isnan(stored.value(d)), is_nan);
        if (!is_nan) {
          EXPECT_EQ(stored.value(d), 0.0);
        }
      }
    }
  }
}

// The stored bytes of a token do not depend on the order of writes or on earlier contents. So the
// cache after a rollback is the same as without the rejected tokens.
TEST(StoreKvRow, RewritingATokenGivesTheSameBytes) {
  std::mt19937 random(8);
  const Ragged ragged;
  for (const KvDType dtype : kAllKvDTypes) {
    Cache once(dtype, 2, 10), again(dtype, 2, 10);
    const TestMatrix rows = TestMatrix::Random(8, 10, random);
    const TestMatrix rejected = TestMatrix::Random(8, 10, random, 100.0f);
    for (int i = 0; i < 8; ++i) {
      StoreKvRow(once.view(ragged), 3, i / 4, i % 4, rows.row(i), rows.row(7 - i));
    }
    for (int i = 7; i >= 0; --i) {
      StoreKvRow(again.view(ragged), 3, i / 4, i % 4, rejected.row(i), rejected.row(i));
      StoreKvRow(again.view(ragged), 3, i / 4, i % 4, rows.row(i), rows.row(7 - i));
    }
    EXPECT_EQ(once.keys, again.keys) << NameOf(dtype);
    EXPECT_EQ(once.values, again.values) << NameOf(dtype);
  }
}

}  // namespace
}  // namespace tandem
