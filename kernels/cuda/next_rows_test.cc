// Rows that operations write for the product that reads them next have the bits of rows that are
// packed for it.
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "kernels/attention_testing.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/product_testing.h"
#include "kernels/row_testing.h"

namespace tandem::cuda {
namespace {

constexpr int kHidden = 160, kGatedSize = 96, kOutputs = 40;

class NextRowsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (backend_ == nullptr) return;
    out_ = Pack(kHidden, kHidden);
    down_ = Pack(kHidden, kGatedSize);
    last_ = Pack(kOutputs, kHidden);
    const TestWeight gate(TestMatrix::Random(kGatedSize, kHidden, random_), DType::kBF16);
    const TestWeight up(TestMatrix::Random(kGatedSize, kHidden, random_), DType::kBF16);
    gate_up_ = PackParts(backend(), {{gate.view()}, {up.view()}}, PartOrder::kGateAndUp);
    norm_.emplace(backend(), TestMatrix::Random(1, kHidden, random_));
    other_norm_.emplace(backend(), TestMatrix::Random(1, kHidden, random_));
  }
  void TearDown() override {
    norm_.reset();
    other_norm_.reset();
    for (PackedWeight* weight : {&out_, &down_, &last_, &gate_up_}) *weight = {};
    CudaTest::TearDown();
  }

  PackedWeight Pack(int outputs, int inputs) {
    return PackOne(backend(),
                   TestWeight(TestMatrix::Random(outputs, inputs, random_), DType::kBF16));
  }
  NormedRows Normed(MatrixView x, UploadedMatrix& norm) {
    return {.x = x, .weight = norm.data(), .epsilon = kNormEpsilon};
  }
  // The product of the normed rows of `x`, which is only read.
  TestMatrix NormedProductOf(MatrixView x, UploadedMatrix& norm) {
    UploadedMatrix out(backend(), Unwritten(x.rows, kOutputs));
    backend().MatMul(Normed(x, norm), last_, out.view());
    return out.Get();
  }

  std::mt19937 random_{17};
  PackedWeight out_, down_, last_, gate_up_;
  std::optional<UploadedMatrix> norm_, other_norm_;
};

// The products of a layer, from attention's result on, and the first product of the next layer.
TEST_F(NextRowsTest, ProductsWriteTheBitsOfPackedRows) {
  for (const int rows : {1, 2, 5, 8, 9, 16, 17, 33, 64, 70, 140, 300}) {
    const TestMatrix before = TestMatrix::Random(rows, kHidden, random_, 3.0f);
    const TestMatrix x = TestMatrix::Random(rows, kHidden, random_);
    std::vector<TestMatrix> hidden, out;
    for (const bool tells : {false, true}) {
      UploadedMatrix attended(backend(), x), sum(backend(), before);
      UploadedMatrix gated(backend(), Unwritten(rows, kGatedSize));
      const auto next = [&](const PackedWeight& weight, UploadedMatrix* norm) {
        if (!tells) return NextProduct{};
        return NextProduct{.weight = &weight, .norm = norm == nullptr ? nullptr : norm->data()};
      };
      backend().MatMulAdd(attended.view(), out_, sum.view(), next(gate_up_, &*norm_));
      backend().MatMulGated(Normed(sum.view(), *norm_), gate_up_, Activation::kSilu, gated.view(),
                            next(down_, nullptr));
      backend().MatMulAdd(gated.view(), down_, sum.view(), next(last_, &*other_norm_));
      out.push_back(NormedProductOf(sum.view(), *other_norm_));
      hidden.push_back(sum.Get());
    }
    EXPECT_TRUE(hidden[1].SameBits(hidden[0])) << rows;
    EXPECT_TRUE(out[1].SameBits(out[0])) << rows;
  }
}

TEST_F(NextRowsTest, TheNextProductMayHaveNoNorm) {
  const TestMatrix x = TestMatrix::Random(5, kHidden, random_);
  std::vector<TestMatrix> out;
  for (const bool tells : {false, true}) {
    UploadedMatrix in(backend(), x), sum(backend(), x);
    const NextProduct next = tells ? NextProduct{.weight = &last_} : NextProduct{};
    backend().MatMulAdd(in.view(), out_, sum.view(), next);
    // Rows without a norm are not those of a product with one.
    out.push_back(NormedProductOf(sum.view(), *norm_));
    EXPECT_TRUE(Multiply(backend(), sum.Get(), last_).SameBits([&] {
      UploadedMatrix product(backend(), Unwritten(5, kOutputs));
      backend().MatMul(sum.view(), last_, product.view());
      return product.Get();
    }()));
  }
  EXPECT_TRUE(out[1].SameBits(out[0]));
}

TEST_F(NextRowsTest, NanStaysInItsRow) {
  TestMatrix x = TestMatrix::Random(9, kHidden, random_);
  x.at(3, 70) = NAN;
  UploadedMatrix in(backend(), x), sum(backend(), TestMatrix::Random(9, kHidden, random_));
  backend().MatMulAdd(in.view(), out_, sum.view(), {.weight = &last_, .norm = norm_->data()});
  const TestMatrix out = NormedProductOf(sum.view(), *norm_);
  for (int r = 0; r < 9; ++r) EXPECT_EQ(std::isnan(out.at(r, 0)), r == 3);
}

TEST_F(NextRowsTest, EmbeddingWritesTheBitsOfPackedRows) {
  const std::vector<int32_t> ids = {19, 0, 3, 19, 7, 5, 4, 3, 2, 11};
  const Buffer device_ids = Upload(ids);
  const auto expect = [&](const ConstMatrixView& table, const char* name) {
    Buffer storage;
    const ConstMatrixView view = *backend().Import(table, &storage);
    for (const int rows : {1, 7, 10}) {
      std::vector<TestMatrix> out, embedded;
      for (const bool tells : {false, true}) {
        UploadedMatrix into(backend(), Unwritten(rows, kHidden));
        const NextProduct next{.weight = &last_, .norm = norm_->data()};
        backend().Embed(static_cast<const int32_t*>(device_ids.data()), view, into.view(),
                        tells ? next : NextProduct{});
        out.push_back(NormedProductOf(into.view(), *norm_));
        embedded.push_back(into.Get());
      }
      EXPECT_TRUE(embedded[1].SameBits(embedded[0])) << name;
      EXPECT_TRUE(out[1].SameBits(out[0])) << name << " rows " << rows;
    }
  };
  for (const DType dtype : kAllDTypes) {
    expect(TestWeight(TestMatrix::Random(20, kHidden, random_), dtype).view(), NameOf(dtype));
  }
  expect(RandomBlocks(DType::kQ8_0, 20, kHidden, random_).view(), "q8_0");
  expect(RandomBlocks(DType::kIq4Nl, 20, kHidden, random_).view(), "iq4_nl");
}

// Few rows, splits that are merged, prompts, and heads that are not whole warps.
TEST_F(NextRowsTest, AttentionWritesTheBitsOfPackedRows) {
  struct Case {
    int heads, kv_heads, head_dim;
    KvDType dtype;
    std::vector<int> counts, lengths;
  };
  const Case cases[] = {
      {8, 2, 20, KvDType::kF32, {3, 1}, {9, 4}},      {8, 2, 20, KvDType::kF32, {3, 1}, {300, 290}},
      {8, 2, 4, KvDType::kInt8, {2}, {30}},           {4, 2, 64, KvDType::kBF16, {1, 5}, {20, 600}},
      {4, 1, 24, KvDType::kBF16, {1}, {270}},         {4, 2, 128, KvDType::kBF16, {9}, {9}},
      {8, 2, 64, KvDType::kBF16, {90, 5}, {90, 300}}, {8, 4, 36, KvDType::kBF16, {150}, {400}},
  };
  for (const Case& c : cases) {
    const AttentionShape shape{
        .num_heads = c.heads, .num_kv_heads = c.kv_heads, .head_dim = c.head_dim, .dtype = c.dtype};
    AttentionWorld world(shape, c.lengths, /*page_size=*/16, NAN);
    const PackedWeight weight = Pack(kOutputs, c.heads * c.head_dim);
    const TestMatrix expected =
        Multiply(backend(), world.Attend(backend(), c.counts, c.lengths), weight);
    const TestMatrix got = world.Attend(backend(), c.counts, c.lengths, 0, 0, &weight);
    EXPECT_TRUE(got.SameBits(expected)) << world.Describe();
  }
}

// Whatever writes the matrix, or the norm, after its rows have been written.
TEST_F(NextRowsTest, AreForgottenWhenTheMatrixChanges) {
  constexpr int kRows = 6;
  const TestMatrix x = TestMatrix::Random(kRows, kHidden, random_);
  UploadedMatrix in(backend(), x), other(backend(), TestMatrix::Random(kRows, kHidden, random_));
  UploadedMatrix table(backend(), TestMatrix::Random(3, kHidden, random_));
  const Buffer ids = Upload(std::vector<int32_t>{0, 2, 1, 1, 0, 2});
  const auto* const indices = static_cast<const int32_t*>(ids.data());
  const std::vector<float> numbers(kHidden, 2.0f);
  const auto bytes = [](const std::vector<float>& of) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(of.data()),
                               of.size() * sizeof(float));
  };
  const auto last_row = [](MatrixView sum) {
    return static_cast<float*>(sum.data) + (kRows - 1) * sum.stride;
  };
  using Change = std::function<void(MatrixView sum)>;
  const std::map<std::string, Change> changes = {
      {"Upload", [&](MatrixView sum) { backend().Upload(bytes(numbers), last_row(sum)); }},
      {"Copy",
       [&](MatrixView sum) { backend().Copy(in.data(), last_row(sum), kHidden * sizeof(float)); }},
      {"Embed", [&](MatrixView sum) { backend().Embed(indices, table.view(), sum, {}); }},
      {"GatherRows", [&](MatrixView sum) { backend().GatherRows(other.view(), indices, sum); }},
      {"RmsNorm", [&](MatrixView sum) { backend().RmsNorm(sum, other_norm_->data(), 1e-5f, sum); }},
      {"SubtractMean", [&](MatrixView sum) { backend().SubtractMean(other.view(), sum); }},
      {"ScaleAndCap", [&](MatrixView sum) { backend().ScaleAndCap(3.0f, 2.0f, sum); }},
      {"AddScaled", [&](MatrixView sum) { backend().AddScaled(other.view(), 2.0f, sum); }},
      {"a column",
       [&](MatrixView sum) {
         sum.cols = 1;
         MatrixView from = other.view();
         from.cols = 1;
         backend().AddScaled(from, 2.0f, sum);
       }},
      {"MatMul", [&](MatrixView sum) { backend().MatMul(other.view(), out_, sum); }},
      {"MatMulAdd", [&](MatrixView sum) { backend().MatMulAdd(other.view(), out_, sum); }},
      {"the norm",
       [&](MatrixView) { backend().Upload(bytes(numbers), const_cast<float*>(norm_->data())); }},
  };
  const TestMatrix norm_matrix = norm_->Get();
  const std::vector<float> norm(norm_matrix.row(0), norm_matrix.row(0) + kHidden);
  for (const auto& [name, change] : changes) {
    std::vector<TestMatrix> out;
    for (const bool tells : {false, true}) {
      backend().Upload(bytes(norm), const_cast<float*>(norm_->data()));
      UploadedMatrix sum(backend(), x);
      const NextProduct next{.weight = &last_, .norm = norm_->data()};
      backend().MatMulAdd(in.view(), out_, sum.view(), tells ? next : NextProduct{});
      change(sum.view());
      out.push_back(NormedProductOf(sum.view(), *norm_));
    }
    EXPECT_TRUE(out[1].SameBits(out[0])) << name;
  }
}

}  // namespace
}  // namespace tandem::cuda
