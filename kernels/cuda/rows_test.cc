// Operations on single rows, on a device.
#include <cmath>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/row_testing.h"

namespace tandem::cuda {
namespace {

using Rows = CudaTest;

TEST_F(Rows, EmbedConvertsEveryDTypeAndLeavesPaddingAlone) {
  std::mt19937 random(1);
  for (const DType dtype : kAllDTypes) {
    TestMatrix values = TestMatrix::Random(20, 37, random);
    values.at(3, 5) = 1e-7f;  // subnormal as f16
    const TestWeight table(values, dtype);
    const std::vector<int32_t> ids = {19, 0, 3, -1, 3, 20};
    const TestMatrix got = Embed(backend(), table.view(), ids);
    for (int r = 0; r < 6; ++r) {
      for (int c = 0; c < 37; ++c) {
        const bool padding = r == 3 || r == 5;
        ASSERT_EQ(got.at(r, c), padding ? 7.0f : table.values().at(ids[r], c)) << NameOf(dtype);
      }
    }
  }
}

TEST_F(Rows, EmbedWidensBlocksAsTheHostDoes) {
  std::mt19937 random(7);
  for (const DType dtype : kAllBlockDTypes) {
    const RandomBlocks table(dtype, 35, 544, random);
    const std::vector<int32_t> ids = {34, 0, 8, 35, 17, -1, 8};
    TestMatrix expected(7, 544);
    for (int r = 0; r < 7; ++r) {
      const bool padding = r == 3 || r == 5;
      const std::vector<float> row =
          padding ? std::vector<float>(544, 7.0f) : table.Widened(ids[r]);
      std::copy(row.begin(), row.end(), expected.row(r));
    }
    EXPECT_TRUE(Embed(backend(), table.view(), ids).SameBits(expected)) << NameOf(dtype);
  }
}

TEST_F(Rows, GatherRowsKeepsTheOrderOfIndices) { ExpectGathersRows(backend(), 300); }

// If the number of columns is not a multiple of 4, rows are not aligned to 16 bytes.
TEST_F(Rows, ArgMaxTakesTheFirstOfEqualsAndRefusesNaN) {
  std::mt19937 random(6);
  for (const int cols : {1, 5, 64, 127, 4096, 4099, 9000}) {
    ExpectArgMax(backend(), cols, random);
  }
}

// Roundings: cols / 512 in a chain and one in each of 5 + 5 sums, all halved by the root; then a
// root, a quotient, two for the mean, and two products.
TEST_F(Rows, RmsNormMatchesDoublePrecision) {
  std::mt19937 random(3);
  for (const int cols : {1, 3, 31, 32, 33, 256, 257, 896, 2049, 4096, 4097, 7000}) {
    ExpectRmsNormNearExact(backend(), cols, cols / 512 + 17, random);
  }
}

TEST_F(Rows, RmsNormSumsSquaresInTheOrderOfAllNorms) {
  std::mt19937 random(8);
  for (const int cols : {1, 8, 9, 16, 40, 512, 513, 528, 4096, 7001}) {
    const TestMatrix x = TestMatrix::Random(2, cols, random, 3.0f);
    const TestMatrix weight = TestMatrix::Random(1, cols, random);
    TestMatrix expected(2, cols);
    for (int r = 0; r < 2; ++r) {
      const float factor = NormFactorOf(x.row(r), cols, 1e-5f);
      for (int c = 0; c < cols; ++c) {
        const float normed = x.at(r, c) * factor;
        expected.at(r, c) = normed * weight.at(0, c);
      }
    }
    EXPECT_TRUE(RmsNorm(backend(), x, weight, 1e-5f).SameBits(expected)) << cols;
  }
}

TEST_F(Rows, RmsNormRowsHaveTheSameBitsAsAloneAndNanStaysInItsRow) {
  ExpectRmsNormRowsAsAlone(backend(), 17, 11);
}

// A mean errs by the roundings of a chain of cols / 256 and 13 more. A cap errs by two units in the
// last place of tanh and three roundings.
TEST_F(Rows, MeansScalesAndSumsMatchDoublePrecision) {
  std::mt19937 random(12);
  for (const int cols : {1, 3, 100, 2049}) {
    ExpectSubtractsMean(backend(), cols, cols / 256 + 14, random);
    for (const float cap : {0.0f, 2.0f}) ExpectScalesAndCaps(backend(), cols, cap, 8, random);
    ExpectAddsRoundedProducts(backend(), cols, random);
  }
}

// Cosines and sines err by up to two units in the last place (CUDA manual), and by one product.
TEST_F(Rows, RotaryAnglesAreTheCosinesAndSinesOfF32Products) {
  ExpectRotaryAngles(backend(), Ragged(30, 2),
                     [](float got, bool is_sine, float angle, float magnitude) {
                       const double m = magnitude, a = angle;
                       ASSERT_NEAR(got, (is_sine ? std::sin(a) : std::cos(a)) * m, m * 5 * 0x1p-24);
                     });
}

// Compares the cache and rotated heads with the CPU's. Rotation has the same three roundings. A
// norm before it errs by about 20 roundings, which may change one rounding of a cache of bf16 or
// int8.
TEST_F(Rows, RotateAndCacheMatchesTheCpu) {
  constexpr int kHeads = 3, kKvHeads = 2;
  const auto cpu = *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
  const Ragged ragged(30, 2);
  std::mt19937 random(5);
  for (const KvDType dtype : kAllKvDTypes) {
    for (const int head_dim : {2, 10, 64, 128}) {
      for (const bool with_norms : {false, true}) {
        TestMatrix qkv =
            TestMatrix::Random(ragged.num_rows, (kHeads + 2 * kKvHeads) * head_dim, random);
        const TestMatrix angles = TestMatrix::Random(ragged.num_rows, head_dim, random);
        const TestMatrix norm = TestMatrix::Random(1, head_dim, random);
        RaggedCache cache(dtype, kKvHeads, head_dim);
        const PagedKvView kv = cache.view(ragged);
        const Buffer starts = Upload(ragged.starts), lengths = Upload(ragged.lengths);
        const Buffer plan = Upload(backend().PlanRows(ragged.starts, ragged.num_rows, {}));
        const Buffer device_tables = Upload(cache.tables);
        Buffer device_keys = Upload(cache.keys), device_values = Upload(cache.values);
        UploadedMatrix device_qkv(backend(), qkv), device_angles(backend(), angles);
        UploadedMatrix device_norm(backend(), norm);
        PagedKvView device_kv = kv;
        device_kv.keys = device_keys.data();
        device_kv.values = device_values.data();
        device_kv.page_tables = static_cast<const int32_t*>(device_tables.data());
        device_kv.lengths = static_cast<const int32_t*>(lengths.data());
        const HeadNorms device_norms = {with_norms ? device_norm.data() : nullptr,
                                        with_norms ? device_norm.data() : nullptr, 1e-5f};
        backend().RotateAndCache(device_qkv.view(), device_angles.view(), device_norms,
                                 {static_cast<const int32_t*>(starts.data()), 3, ragged.num_rows,
                                  static_cast<const int32_t*>(plan.data())},
                                 device_kv);

        const HeadNorms norms = {with_norms ? norm.row(0) : nullptr,
                                 with_norms ? norm.row(0) : nullptr, 1e-5f};
        // The CPU does not support rows of padding. They must stay unchanged on the device.
        MatrixView rows = qkv.view();
        ConstMatrixView row_angles = angles.view();
        rows.rows = row_angles.rows = 35;
        cpu->RotateAndCache(rows, row_angles, norms, ragged.rows(), kv);

        const double relative = with_norms ? 0x1p-18 : 0.0;
        const TestMatrix got = device_qkv.Get();
        for (int r = 0; r < ragged.num_rows; ++r) {
          for (int c = 0; c < qkv.cols(); ++c) {
            ASSERT_NEAR(got.at(r, c), qkv.at(r, c), relative * 20) << NameOf(dtype);
          }
        }
        const auto got_keys = Download<uint32_t>(device_keys);
        const auto got_values = Download<uint32_t>(device_values);
        EXPECT_EQ(got_values, cache.values);
        const std::vector<uint32_t>& keys = cache.keys;
        for (size_t i = 0; i < keys.size(); ++i) {
          if (!with_norms || keys[i] == RaggedCache::kUntouched) {
            ASSERT_EQ(got_keys[i], keys[i]) << NameOf(dtype) << " head of " << head_dim;
          } else if (dtype == KvDType::kF32) {
            ASSERT_NEAR(std::bit_cast<float>(got_keys[i]), std::bit_cast<float>(keys[i]),
                        relative * 20);
          } else if (dtype == KvDType::kInt8) {
            const int64_t in_block = static_cast<int64_t>(i) % kv.page_stride % kv.head_stride;
            if (in_block >= kv.page_size * KvElementWords(dtype, head_dim)) {
              const float expected = std::bit_cast<float>(keys[i]);
              ASSERT_NEAR(std::bit_cast<float>(got_keys[i]), expected, expected * 0x1p-18);
            }
            for (int shift = 0;
                 shift < 32 && in_block < kv.page_size * KvElementWords(dtype, head_dim);
                 shift += 8) {
              ASSERT_NEAR(static_cast<int8_t>(got_keys[i] >> shift),
                          static_cast<int8_t>(keys[i] >> shift), 1);
            }
          } else {
            for (const int shift : {0, 16}) {
              const float expected = Bf16ToFloat(static_cast<uint16_t>(keys[i] >> shift));
              ASSERT_NEAR(Bf16ToFloat(static_cast<uint16_t>(got_keys[i] >> shift)), expected,
                          std::abs(expected) * 0x1p-7 + relative * 20);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
