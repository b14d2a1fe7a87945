// Every variant of an operation gives the same bits.
#include "kernels/cuda/variants.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/device.h"
#include "kernels/product_testing.h"
#include "kernels/row_sums.h"

namespace tandem::cuda {
namespace {

class Variants : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    DeviceProperties properties;
    ASSERT_EQ(OpenDevice(0, &properties, &stream_), kNoError);
  }
  void TearDown() override {
    if (stream_ != nullptr) CloseDevice(stream_);
    CudaTest::TearDown();
  }

  static constexpr int kAlwaysFewRows = 1 << 20;  // the kernel that has as many processors

  void Run(Error error) { ASSERT_EQ(error, kNoError) << ErrorText(error); }

  // Returns the product by one variant, added to `before` if the epilogue adds.
  TestMatrix Product(const TestMatrix& x, const TestMatrix* norm, const PackedWeight& weight,
                     Epilogue end, const TestMatrix& before, int variant,
                     int num_sms = kAlwaysFewRows) {
    UploadedMatrix in(backend(), x), out(backend(), before);
    UploadedMatrix norm_weight(backend(), norm == nullptr ? TestMatrix(1, x.cols()) : *norm);
    const bool quantizes = IsBlocks(weight.dtype);
    const Buffer rows = Upload(std::vector<uint8_t>(
        quantizes ? PackedWholeRowsBytes(x.rows(), x.cols()) : RowsImageBytes(x.rows(), x.cols())));
    const Buffer squares = Upload(std::vector<float>(x.rows() * NumSquares(x.cols())));
    EXPECT_TRUE(backend().Synchronize().ok());
    const NormTask normed{.weight = norm == nullptr ? nullptr : norm_weight.data(),
                          .epsilon = kNormEpsilon};
    const PackRowsTask pack{.x = in.view(),
                            .out = rows.data(),
                            .quantizes = quantizes,
                            .norm = normed,
                            .squares = static_cast<float*>(squares.data())};
    const int tile_outputs = IsGated(end) ? kTileOutputs / 2 : kTileOutputs;
    const TileProductTask task{.x = in.view(),
                               .rows = rows.data(),
                               .norm = normed,
                               .squares = static_cast<const float*>(squares.data()),
                               .weight = weight.data.data(),
                               .dtype = weight.dtype,
                               .bias = static_cast<const float*>(weight.bias.data()),
                               .num_tiles = CeilDiv(before.cols(), tile_outputs),
                               .num_sms = num_sms,
                               .variant = variant,
                               .wide_variant = variant,
                               .end = end,
                               .out = out.view()};
    Run(Launch(pack, stream_));
    Run(Launch(task, stream_));
    Run(Wait(stream_));
    return out.Get();
  }

  // Expects the bits of variant 0 from all others, and from a larger number.
  void ExpectEqual(const TestMatrix& x, const TestMatrix* norm, const PackedWeight& weight,
                   Epilogue end, int outputs, std::mt19937& random) {
    const TestMatrix before = TestMatrix::Random(x.rows(), outputs, random);
    const TestMatrix first = Product(x, norm, weight, end, before, 0);
    EXPECT_FALSE(first.SameBits(before));
    const int count = NumVariants(weight.dtype, x.rows());
    for (int variant = 1; variant <= count; ++variant) {
      EXPECT_TRUE(Product(x, norm, weight, end, before, variant).SameBits(first))
          << NameOf(weight.dtype) << " variant " << variant << " of " << count << ", K " << x.cols()
          << " N " << outputs << " rows " << x.rows();
    }
  }

  Stream stream_ = nullptr;
};

// Shapes whose last tiles, stages and chunks are not full, in every class of rows.
TEST_F(Variants, ProductsOfBf16HaveTheSameBits) {
  std::mt19937 random(21);
  for (const auto& [inputs, outputs] : {std::pair{33, 17}, {300, 100}, {1570, 130}}) {
    const TestWeight weight(TestMatrix::Random(outputs, inputs, random), DType::kBF16);
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed = PackOne(backend(), weight, bias.data());
    const PackedWeight gated = PackParts(backend(), {{weight.view(), bias.data()}, {weight.view()}},
                                         PartOrder::kGateAndUp);
    const TestMatrix norm = TestMatrix::Random(1, inputs, random);
    for (const int rows : {1, 8, 9, 24, 65}) {
      if (inputs == 1570 && rows != 1 && rows != 24) continue;
      const TestMatrix x = TestMatrix::Random(rows, inputs, random);
      if (inputs == 33) ExpectEqual(x, nullptr, packed, Epilogue::kStore, outputs, random);
      if (inputs == 33) ExpectEqual(x, nullptr, gated, Epilogue::kGeGlu, outputs, random);
      if (inputs != 33) ExpectEqual(x, &norm, packed, Epilogue::kAdd, outputs, random);
      if (inputs == 300) ExpectEqual(x, &norm, gated, Epilogue::kSwiGlu, outputs, random);
    }
  }
}

// Products of more rows by warpgroups have the bits of 40 rows at a time. Blocks take one tile
// each, or all of them in turn, with fewer chunks of inputs than stages or with more.
TEST_F(Variants, ProductsByWarpgroupsHaveTheBitsOfFewRows) {
  bool has_warpgroups = false;
  Run(HasWarpgroupProducts(stream_, &has_warpgroups));
  if (!has_warpgroups) GTEST_SKIP() << "the device has none";
  std::mt19937 random(24);
  for (const auto& [rows, inputs, outputs, num_sms] :
       {std::tuple{65, 32, 17, 100}, {270, 33, 70, 2}, {140, 420, 140, 1}}) {
    const TestWeight weight(TestMatrix::Random(outputs, inputs, random), DType::kBF16);
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed = PackOne(backend(), weight, bias.data());
    const PackedWeight gated = PackParts(backend(), {{weight.view(), bias.data()}, {weight.view()}},
                                         PartOrder::kGateAndUp);
    const TestMatrix norm = TestMatrix::Random(1, inputs, random);
    const TestMatrix x = TestMatrix::Random(rows, inputs, random);
    const TestMatrix before = TestMatrix::Random(rows, outputs, random);
    for (const Epilogue end : {Epilogue::kAdd, Epilogue::kSwiGlu}) {
      const PackedWeight& of = IsGated(end) ? gated : packed;
      std::vector<TestMatrix> few;
      for (int first = 0; first < rows; first += 40) {
        std::vector<int> some = Iota(std::min(40, rows - first));
        for (int& row : some) row += first;
        few.push_back(Product(x.Rows(some), &norm, of, end, before.Rows(some), 0));
      }
      for (int variant = 1; variant <= kNumWideVariants; ++variant) {
        const TestMatrix all = Product(x, &norm, of, end, before, variant, num_sms);
        for (int first = 0; first < rows; first += 40) {
          std::vector<int> some = Iota(std::min(40, rows - first));
          for (int& row : some) row += first;
          EXPECT_TRUE(few[first / 40].SameBits(all.Rows(some)))
              << "variant " << variant << " rows from " << first << " of " << rows << " K "
              << inputs << " N " << outputs;
        }
      }
    }
  }
}

TEST_F(Variants, ProductsOfBlocksHaveTheSameBits) {
  std::mt19937 random(22);
  for (const DType dtype : kAllBlockDTypes) {
    const int inputs = dtype == DType::kQ8_0 ? 1280 : 256, outputs = 40;
    const TestWeight weight(TestMatrix::Random(outputs, inputs, random), dtype);
    const std::vector<float> bias = RandomBias(outputs, random);
    const PackedWeight packed = PackOne(backend(), weight, bias.data());
    const TestMatrix norm = TestMatrix::Random(1, inputs, random);
    for (const int rows : {1, 11}) {
      const TestMatrix x = TestMatrix::Random(rows, inputs, random);
      ExpectEqual(x, &norm, packed, Epilogue::kStore, outputs, random);
      if (dtype != DType::kQ4K) continue;
      const PackedWeight gated = PackParts(
          backend(), {{weight.view(), bias.data()}, {weight.view()}}, PartOrder::kGateAndUp);
      ExpectEqual(x, nullptr, gated, Epilogue::kSwiGlu, outputs, random);
      ExpectEqual(x, nullptr, packed, Epilogue::kAdd, outputs, random);
    }
  }
}

// Rows of one digit, of few and of many; ties; and a last stride that is not full.
TEST_F(Variants, DistributionsHaveTheSameBits) {
  std::mt19937 random(23);
  for (const auto& [size, spread] :
       {std::pair{1, 1.0f}, {900, 0.0f}, {2500, 12.0f}, {9001, 3.0f}}) {
    const TestMatrix logits = TestMatrix::Random(1, size, random, spread);
    const UploadedMatrix in(backend(), logits);
    for (const auto& [top_k, top_p] : {std::pair{0, 0.9f}, {0, 1e-6f}, {size / 2, 0.999999f}}) {
      std::vector<float> first;
      for (int variant = 0; variant <= kNumDistributionVariants; ++variant) {
        const Buffer probs = Upload(std::vector<float>(size, -1.0f));
        const Buffer rows = Upload(std::vector<RowTask>{{.logits = in.data(),
                                                         .probs = static_cast<float*>(probs.data()),
                                                         .size = size,
                                                         .inverse_temperature = 1.1f,
                                                         .top_k = top_k,
                                                         .enough = UnitsToReach(top_p)}});
        const Buffer states = Upload(std::vector<RowState>(1, RowState::kOverflows));
        EXPECT_TRUE(backend().Synchronize().ok());
        const DistributionsTask task{.rows = static_cast<const RowTask*>(rows.data()),
                                     .states = static_cast<RowState*>(states.data()),
                                     .num_rows = 1,
                                     .variant = variant};
        Run(Launch(task, stream_));
        Run(Wait(stream_));
        EXPECT_EQ(Download<RowState>(states)[0], RowState::kDistribution);
        const std::vector<float> got = Download<float>(probs);
        if (variant == 0) first = got;
        EXPECT_EQ(std::memcmp(got.data(), first.data(), size * sizeof(float)), 0)
            << "variant " << variant << ", " << size << " entries, top_p " << top_p;
      }
      EXPECT_GT(*std::max_element(first.begin(), first.end()), 0.0f);
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
