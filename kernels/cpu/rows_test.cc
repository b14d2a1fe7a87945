// Tests of operations on single rows: embedding, norms, rotation, writes to the cache, exp.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/cpu/kv_rows.h"
#include "kernels/kernel_testing.h"
#include "kernels/row_testing.h"

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
      const std::vector<int32_t> ids = {7, 0, 49, 7};
      EXPECT_TRUE(
          Embed(*test.backend, table.view(), ids).SameBits(table.values().Rows({7, 0, 49, 7})))
          << test.label;
    }
  }
}

TEST(GatherRows, CopiesTheIndexedRows) {
  for (TestBackend& test : AllBackends()) ExpectGathersRows(*test.backend, 13);
}

// The sizes cover stretches, whole vectors and the remainder after them.
TEST(ArgMax, TakesTheFirstOfEqualsAndRejectsNanAndInfinity) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 5, 63, 1024, 1025, 5000}) {
      ExpectArgMax(*test.backend, cols, random);
    }
  }
}

// The mean of squares has at most cols / 64 + 8 roundings of positive terms, which the square root
// halves. Then a root, a quotient and two products round.
TEST(RmsNorm, MatchesDoublePrecision) {
  std::mt19937 random(3);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 3, 15, 16, 17, 63, 64, 65, 100, 896, 2048, 2049}) {
      SCOPED_TRACE(test.label);
      ExpectRmsNormNearExact(*test.backend, cols, cols / 64 + 14, random);
    }
  }
}

TEST(RmsNorm, RowsHaveTheBitsTheyHaveAloneAndNanStaysInItsRow) {
  for (TestBackend& test : AllBackends(3)) ExpectRmsNormRowsAsAlone(*test.backend, 100, 50);
}

TEST(SubtractMean, MatchesDoublePrecisionAndRowsHaveTheBitsTheyHaveAlone) {
  std::mt19937 random(6);
  for (TestBackend& test : AllBackends()) {
    for (const int cols : {1, 15, 16, 17, 64, 100, 2049}) {
      SCOPED_TRACE(test.label);
      ExpectSubtractsMean(*test.backend, cols, cols / 64 + 8, random);
    }
  }
}

// The error of a cap is tanh's 3 units in the last place, and two roundings.
TEST(ScaleAndCap, MatchesDoublePrecision) {
  std::mt19937 random(7);
  for (TestBackend& test : AllBackends()) {
    for (const float cap : {0.0f, 0.3f, 30.0f}) {
      SCOPED_TRACE(test.label);
      ExpectScalesAndCaps(*test.backend, 1001, cap, 12, random);
    }
  }
}

TEST(AddScaled, AddsARoundedProduct) {
  std::mt19937 random(8);
  for (TestBackend& test : AllBackends()) ExpectAddsRoundedProducts(*test.backend, 333, random);
}

TEST(RotaryAngles, AreTheCosinesAndSinesOfF32Products) {
  for (TestBackend& test : AllBackends()) {
    ExpectRotaryAngles(*test.backend, Ragged(300, 0),
                       [](float got, bool is_sine, float angle, float magnitude) {
                         ASSERT_EQ(got, (is_sine ? std::sin(angle) : std::cos(angle)) * magnitude);
                       });
  }
}

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
  const Ragged ragged(300, 0);
  for (TestBackend& test : AllBackends()) {
    for (const int d : {2, 8, 10, 32, 50, 64}) {
      for (const bool with_norms : {false, true}) {
        const int heads = 3, kv_heads = 2;
        const TestMatrix before = TestMatrix::Random(305, (heads + 2 * kv_heads) * d, random);
        const TestMatrix angles = TestMatrix::Random(305, d, random);
        const TestMatrix norms = TestMatrix::Random(2, d, random);
        TestMatrix qkv = before;
        RaggedCache cache(GetParam(), kv_heads, d);
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
    RaggedCache cache(KvDType::kInt8, 1, 4);
    const Ragged ragged(300, 0);
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
  const Ragged ragged(300, 0);
  for (const KvDType dtype : kAllKvDTypes) {
    RaggedCache once(dtype, 2, 10), again(dtype, 2, 10);
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
