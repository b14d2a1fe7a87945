// Our bf16 products compared with those of cuBLASLt, on machines that have it.
#include <cstdio>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

class ReferenceProduct : public CudaTest {
 protected:
  // [rows, cols] of bf16 without gaps.
  Buffer UploadBf16(const TestMatrix& matrix) {
    std::vector<uint16_t> values;
    for (int r = 0; r < matrix.rows(); ++r) {
      for (int c = 0; c < matrix.cols(); ++c) values.push_back(FloatToBf16(matrix.at(r, c)));
    }
    return Upload(values);
  }
};

// Both sums add the same exact products. Each has an error of at most K units in the last place of
// the sum of magnitudes, as in product_test.cc.
TEST_F(ReferenceProduct, EqualsOursWithinBothRoundings) {
  std::mt19937 random(1);
  for (const auto& [rows, outputs, inputs] :
       {std::tuple{1, 64, 96}, {128, 64, 256}, {200, 320, 1056}}) {
    const TestMatrix x = TestMatrix::Random(rows, inputs, random);
    const TestWeight weight(TestMatrix::Random(outputs, inputs, random), DType::kBF16);
    const Buffer x_bits = UploadBf16(x), weight_bits = UploadBf16(weight.values());
    const Buffer sums = Upload(std::vector<float>(size_t(rows) * outputs));
    const absl::Status status = backend().meter()->ReferenceProduct(
        {x_bits.data(), DType::kBF16, rows, inputs, inputs},
        {weight_bits.data(), DType::kBF16, outputs, inputs, inputs},
        {sums.data(), DType::kF32, rows, outputs, outputs});
    if (absl::IsUnimplemented(status)) GTEST_SKIP() << status.message();
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<float> theirs = Download<float>(sums);

    DeviceMatrix in(backend(), x), out(backend(), TestMatrix(rows, outputs));
    backend().MatMul(in.view(), PackOne(backend(), weight), out.view());
    const TestMatrix ours = out.Get();
    int64_t num_equal = 0;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < outputs; ++c) {
        const float other = theirs[size_t(r) * outputs + c];
        const ExactDot dot = DotInDouble(x.row(r), weight.values().row(c), inputs, true, 0.0f);
        const double tolerance = 4.0 * (inputs + 10) * 0x1p-23 * dot.magnitude;
        ASSERT_NEAR(ours.at(r, c), other, tolerance) << r << ", " << c;
        num_equal += ours.at(r, c) == other ? 1 : 0;
      }
    }
    std::printf("%d x %d x %d: %.4f of the bits are equal\n", rows, outputs, inputs,
                static_cast<double>(num_equal) / rows / outputs);
  }
}

}  // namespace
}  // namespace tandem::cuda
