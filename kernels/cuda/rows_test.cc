// Operations on single rows, on a device.
#include <cmath>

#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

using Rows = CudaTest;

TEST_F(Rows, EmbedConvertsEveryDTypeAndLeavesPaddingAlone) {
  std::mt19937 random(1);
  for (const DType dtype : kAllDTypes) {
    TestMatrix values = TestMatrix::Random(20, 37, random);
    values.at(3, 5) = 1e-7f;  // subnormal as f16
    const TestWeight table(values, dtype);
    Buffer storage;
    const ConstMatrixView view = *backend().Import(table.view(), &storage);
    const std::vector<int32_t> ids = {19, 0, 3, -1, 3, 20};
    const Buffer device_ids = Upload(ids);
    TestMatrix before(6, 37);
    for (int c = 0; c < 37; ++c) before.at(3, c) = before.at(5, c) = 7.0f;
    DeviceMatrix out(backend(), before);
    backend().Embed(static_cast<const int32_t*>(device_ids.data()), view, out.view());
    const TestMatrix got = out.Get();
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
    Buffer storage;
    const ConstMatrixView view = *backend().Import(table.view(), &storage);
    const std::vector<int32_t> ids = {34, 0, 8, 35, 17, -1, 8};
    const Buffer device_ids = Upload(ids);
    TestMatrix expected(7, 544);
    for (int r = 0; r < 7; ++r) {
      const bool padding = r == 3 || r == 5;
      const std::vector<float> row =
          padding ? std::vector<float>(544, 7.0f) : table.Widened(ids[r]);
      std::copy(row.begin(), row.end(), expected.row(r));
    }
    TestMatrix before(7, 544);
    for (const int r : {3, 5}) std::fill_n(before.row(r), 544, 7.0f);
    DeviceMatrix out(backend(), before);
    backend().Embed(static_cast<const int32_t*>(device_ids.data()), view, out.view());
    EXPECT_TRUE(out.Get().SameBits(expected)) << NameOf(dtype);
  }
}

TEST_F(Rows, GatherRowsKeepsTheOrderOfIndices) {
  std::mt19937 random(2);
  const TestMatrix x = TestMatrix::Random(9, 300, random);
  DeviceMatrix in(backend(), x), out(backend(), TestMatrix(4, 300));
  const Buffer indices = Upload(std::vector<int32_t>{8, 0, 5, 5});
  backend().GatherRows(in.view(), static_cast<const int32_t*>(indices.data()), out.view());
  EXPECT_TRUE(out.Get().SameBits(x.Rows({8, 0, 5, 5})));
}

// If the number of columns is not a multiple of 4, rows are not aligned to 16 bytes.
TEST_F(Rows, ArgMaxTakesTheFirstOfEqualsAndRefusesNaN) {
  std::mt19937 random(6);
  for (const int cols : {1, 5, 64, 127, 4096, 4099, 9000}) {
    const ArgMaxCase rows(cols, random);
    DeviceMatrix in(backend(), rows.x);
    const Buffer largest = Upload(std::vector<int32_t>(rows.x.rows(), 77));
    backend().ArgMax(in.view(), static_cast<int32_t*>(largest.data()));
    EXPECT_EQ(Download<int32_t>(largest), rows.largest) << cols;
  }
}

// Roundings: cols / 256 in a chain and one in each of 5 + 8 sums, all halved by the root; then a
// root, a quotient, two for the mean, and two products.
TEST_F(Rows, RmsNormMatchesDoublePrecision) {
  std::mt19937 random(3);
  for (const int cols : {1, 3, 31, 32, 33, 256, 257, 896, 2049, 4096, 4097, 7000}) {
    const TestMatrix x = TestMatrix::Random(3, cols, random, 3.0f);
    const TestMatrix weight = TestMatrix::Random(1, cols, random);
    DeviceMatrix in(backend(), x), scale(backend(), weight), out(backend(), TestMatrix(3, cols));
    backend().RmsNorm(in.view(), scale.data(), 1e-5f, out.view());
    const TestMatrix got = out.Get();
    for (int r = 0; r < 3; ++r) {
      double squares = 0.0;
      for (int c = 0; c < cols; ++c) squares += double{x.at(r, c)} * x.at(r, c);
      for (int c = 0; c < cols; ++c) {
        const double expected =
            x.at(r, c) / std::sqrt(squares / cols + double{1e-5f}) * weight.at(0, c);
        ASSERT_NEAR(got.at(r, c), expected, std::abs(expected) * 0x1p-24 * (cols / 256 + 20))
            << "cols " << cols;
      }
    }
    backend().RmsNorm(in.view(), scale.data(), 1e-5f, in.view());
    EXPECT_TRUE(in.Get().SameBits(got));
  }
}

TEST_F(Rows, RmsNormRowsHaveTheSameBitsAsAloneAndNanStaysInItsRow) {
  std::mt19937 random(4);
  TestMatrix x = TestMatrix::Random(17, 300, random);
  x.at(11, 299) = NAN;
  DeviceMatrix in(backend(), x), out(backend(), TestMatrix(17, 300));
  DeviceMatrix weight(backend(), TestMatrix::Random(1, 300, random));
  backend().RmsNorm(in.view(), weight.data(), 1e-6f, out.view());
  const TestMatrix got = out.Get();
  for (int r = 0; r < 17; ++r) {
    DeviceMatrix one(backend(), x.Rows({r})), alone(backend(), TestMatrix(1, 300));
    backend().RmsNorm(one.view(), weight.data(), 1e-6f, alone.view());
    ASSERT_TRUE(got.SameBits(r, alone.Get(), 0));
    ASSERT_EQ(std::isnan(got.at(r, 0)), r == 11);
  }
}

// Sequences with 5, 0 and 30 rows that end at positions 8, 3 and 299, and two rows of padding.
struct Ragged {
  std::vector<int32_t> starts = {0, 5, 5, 35};
  std::vector<int32_t> lengths = {9, 4, 300};
  static constexpr int kRows = 37;
  int position(int r) const { return r < 5 ? 4 + r : 270 + r - 5; }
  int sequence(int r) const { return r < 5 ? 0 : 2; }
};

// A mean errs by the roundings of a chain of cols / 256 and 13 more. A cap errs by two units in the
// last place of tanh and three roundings.
TEST_F(Rows, MeansScalesAndSumsMatchDoublePrecision) {
  std::mt19937 random(12);
  for (const int cols : {1, 3, 100, 2049}) {
    const TestMatrix x = TestMatrix::Random(4, cols, random, 3.0f);
    const TestMatrix before = TestMatrix::Random(4, cols, random);
    DeviceMatrix centred(backend(), x), capped(backend(), x), scaled(backend(), x);
    DeviceMatrix from(backend(), x), sum(backend(), before);
    backend().SubtractMean(centred.view(), centred.view());
    backend().ScaleAndCap(1.25f, 2.0f, capped.view());
    backend().ScaleAndCap(1.25f, 0.0f, scaled.view());
    backend().AddScaled(from.view(), 0.22f, sum.view());
    const TestMatrix centred_rows = centred.Get(), capped_rows = capped.Get();
    const TestMatrix scaled_rows = scaled.Get(), sums = sum.Get();
    for (int r = 0; r < 4; ++r) {
      double total = 0.0, sizes = 0.0;
      for (int c = 0; c < cols; ++c) {
        total += x.at(r, c);
        sizes += std::abs(x.at(r, c));
      }
      for (int c = 0; c < cols; ++c) {
        const double value = x.at(r, c), expected = value - total / cols;
        const double cap = 2.0 * std::tanh(value * 1.25 / 2.0);
        ASSERT_NEAR(centred_rows.at(r, c), expected,
                    0x1p-24 * (std::abs(expected) + (cols / 256 + 14) * sizes / cols));
        ASSERT_NEAR(capped_rows.at(r, c), cap, 8 * 0x1p-24 * std::abs(cap));
        ASSERT_EQ(scaled_rows.at(r, c), x.at(r, c) * 1.25f);
        const float product = x.at(r, c) * 0.22f;
        ASSERT_EQ(sums.at(r, c), before.at(r, c) + product);
      }
    }
  }
}

// Cosines and sines err by up to two units in the last place (CUDA manual), and by one product.
TEST_F(Rows, RotaryAnglesAreTheCosinesAndSinesOfF32Products) {
  const Ragged ragged;
  // Two tables; the sequences use the second, the first and the second.
  const std::vector<float> frequencies = {0.5f, 0.2f,        0.1f, 0.05f,   0.0f,
                                          1.0f, 0.31622776f, 0.1f, 0.0316f, 1e-4f};
  const std::vector<float> magnitude = {1.5f, 1.5f, 1.5f, 1.0f, 2.0f};
  const std::vector<int32_t> table = {1, 0, 1};
  const Buffer magnitudes = Upload(magnitude), tables = Upload(table);
  const Buffer starts = Upload(ragged.starts), lengths = Upload(ragged.lengths);
  const Buffer inverse = Upload(frequencies);
  DeviceMatrix angles(backend(), TestMatrix(Ragged::kRows, 10));
  backend().RotaryAngles({static_cast<const int32_t*>(starts.data()), 3, Ragged::kRows},
                         static_cast<const int32_t*>(lengths.data()),
                         {.inverse_frequencies = static_cast<const float*>(inverse.data()),
                          .magnitudes = static_cast<const float*>(magnitudes.data()),
                          .of_sequence = static_cast<const int32_t*>(tables.data())},
                         angles.view());
  const TestMatrix got = angles.Get();
  for (int r = 0; r < 35; ++r) {
    for (int i = 0; i < 5; ++i) {
      const int table_of_row = table[ragged.sequence(r)];
      const float angle =
          static_cast<float>(ragged.position(r)) * frequencies[5 * table_of_row + i];
      const double m = magnitude[i];
      ASSERT_NEAR(got.at(r, i), std::cos(double{angle}) * m, m * 5 * 0x1p-24);
      ASSERT_NEAR(got.at(r, 5 + i), std::sin(double{angle}) * m, m * 5 * 0x1p-24);
    }
  }
  for (int r = 35; r < Ragged::kRows; ++r) EXPECT_EQ(got.at(r, 0), 0.0f);
}

// Compares the cache and rotated heads with the CPU's. Rotation has the same three roundings. A
// norm before it errs by about 20 roundings, which may change one rounding of a cache of bf16 or
// int8.
TEST_F(Rows, RotateAndCacheMatchesTheCpu) {
  constexpr int kHeads = 3, kKvHeads = 2, kPageSize = 4, kPages = 80;
  const auto cpu = *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
  const Ragged ragged;
  std::mt19937 random(5);
  for (const KvDType dtype : kAllKvDTypes) {
    for (const int head_dim : {2, 10, 64, 128}) {
      for (const bool with_norms : {false, true}) {
        TestMatrix qkv =
            TestMatrix::Random(Ragged::kRows, (kHeads + 2 * kKvHeads) * head_dim, random);
        const TestMatrix angles = TestMatrix::Random(Ragged::kRows, head_dim, random);
        const TestMatrix norm = TestMatrix::Random(1, head_dim, random);
        PagedKvView kv;
        kv.batch = 3;
        kv.max_pages = kPages;
        kv.page_size = kPageSize;
        kv.head_stride = kPageSize * KvRowWords(dtype, head_dim);
        kv.page_stride = kKvHeads * kv.head_stride;
        kv.group_stride = kKvGroupPages * kv.page_stride;
        kv.num_kv_heads = kKvHeads;
        kv.head_dim = head_dim;
        kv.dtype = dtype;
        std::vector<int32_t> tables(3 * kPages);
        for (int i = 0; i < 3 * kPages; ++i) tables[i] = 3 * kPages - 1 - i;
        constexpr uint32_t kUntouched = 0x80808080;
        std::vector<uint32_t> keys(3 * kPages * kv.page_stride, kUntouched), values = keys;

        const Buffer starts = Upload(ragged.starts), lengths = Upload(ragged.lengths);
        const Buffer device_tables = Upload(tables);
        Buffer device_keys = Upload(keys), device_values = Upload(values);
        DeviceMatrix device_qkv(backend(), qkv), device_angles(backend(), angles);
        DeviceMatrix device_norm(backend(), norm);
        PagedKvView device_kv = kv;
        device_kv.keys = device_keys.data();
        device_kv.values = device_values.data();
        device_kv.page_tables = static_cast<const int32_t*>(device_tables.data());
        device_kv.lengths = static_cast<const int32_t*>(lengths.data());
        const HeadNorms device_norms = {with_norms ? device_norm.data() : nullptr,
                                        with_norms ? device_norm.data() : nullptr, 1e-5f};
        backend().RotateAndCache(device_qkv.view(), device_angles.view(), device_norms,
                                 {static_cast<const int32_t*>(starts.data()), 3, Ragged::kRows},
                                 device_kv);

        kv.keys = keys.data();
        kv.values = values.data();
        kv.page_tables = tables.data();
        kv.lengths = ragged.lengths.data();
        const HeadNorms norms = {with_norms ? norm.row(0) : nullptr,
                                 with_norms ? norm.row(0) : nullptr, 1e-5f};
        // The CPU does not support rows of padding. They must stay unchanged on the device.
        MatrixView rows = qkv.view();
        ConstMatrixView row_angles = angles.view();
        rows.rows = row_angles.rows = 35;
        cpu->RotateAndCache(rows, row_angles, norms, {ragged.starts.data(), 3, 35}, kv);

        const double relative = with_norms ? 0x1p-18 : 0.0;
        const TestMatrix got = device_qkv.Get();
        for (int r = 0; r < Ragged::kRows; ++r) {
          for (int c = 0; c < qkv.cols(); ++c) {
            ASSERT_NEAR(got.at(r, c), qkv.at(r, c), relative * 20) << NameOf(dtype);
          }
        }
        const auto got_keys = Download<uint32_t>(device_keys);
        const auto got_values = Download<uint32_t>(device_values);
        EXPECT_EQ(got_values, values);
        for (size_t i = 0; i < keys.size(); ++i) {
          if (!with_norms || keys[i] == kUntouched) {
            ASSERT_EQ(got_keys[i], keys[i]) << NameOf(dtype) << " head of " << head_dim;
          } else if (dtype == KvDType::kF32) {
            ASSERT_NEAR(std::bit_cast<float>(got_keys[i]), std::bit_cast<float>(keys[i]),
                        relative * 20);
          } else if (dtype == KvDType::kInt8) {
            const int64_t in_block = static_cast<int64_t>(i) % kv.head_stride;
            if (in_block >= kPageSize * KvElementWords(dtype, head_dim)) {
              const float expected = std::bit_cast<float>(keys[i]);
              ASSERT_NEAR(std::bit_cast<float>(got_keys[i]), expected, expected * 0x1p-18);
            }
            for (int shift = 0;
                 shift < 32 && in_block < kPageSize * KvElementWords(dtype, head_dim); shift += 8) {
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
