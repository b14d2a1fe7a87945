// Products with bf16 weights compared with the modelled arithmetic of tensor cores, on a device and
// on the host.
#include <bit>
#include <cmath>
#include <utility>

#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/product_layout.h"
#include "tests/simt/tensor_core_arithmetic.h"

namespace tandem::cuda {
namespace {

// Returns arbitrary bits, or numbers within 2^12 of each other and a few zeros, which overlap in
// sums.
float AnyBf16(bool near_one, std::mt19937& random) {
  uint32_t bits = static_cast<uint32_t>(random()) & 0xFFFF0000;
  if (near_one && bits % 0x100000 == 0) bits = 0;
  if (near_one && bits != 0) bits = (bits & 0x807F0000) | (121 + random() % 13) << 23;
  return std::bit_cast<float>(bits);
}

// An output is one chain of instructions in increasing input, whatever the number of rows, with the
// arithmetic of tests/simt/tensor_core_arithmetic.h bit for bit. On a device this tests that model.
class TensorCores : public CudaTest {
 protected:
  TestMatrix Multiply(const TestMatrix& x, const PackedWeight& weight, int outputs) {
    DeviceMatrix in(backend(), x), out(backend(), TestMatrix(x.rows(), outputs));
    backend().MatMul(in.view(), weight, out.view());
    return out.Get();
  }
  static simt::TensorCore CoreOf(int device) {
    DeviceProperties properties;
    Stream stream = nullptr;
    TANDEM_CHECK(OpenDevice(device, &properties, &stream) == kNoError);
    CloseDevice(stream);
    return properties.major < 9 ? simt::kAmpere : simt::kHopper;
  }
  static float ChainOf(const simt::TensorCore& core, const float* x, const float* w, int inputs) {
    float sum = 0.0f;
    for (int first = 0; first < CeilDiv(inputs, kStepInputs) * kStepInputs;
         first += simt::kTensorDepth) {
      simt::TensorNumber a[simt::kTensorDepth], b[simt::kTensorDepth];
      for (int k = 0; k < simt::kTensorDepth; ++k) {
        const bool is_in = first + k < inputs;
        a[k] = simt::TensorNumber::Of(is_in ? w[first + k] : 0.0f);
        b[k] = simt::TensorNumber::Of(is_in ? x[first + k] : 0.0f);
      }
      sum = simt::MultiplyAndAdd(core, a, b, sum);
    }
    return sum;
  }
};

TEST_F(TensorCores, MultiplyRandomBitsAsModelled) {
  std::mt19937 random(21);
  for (const int device : {0, 1}) {
    if (!Open(device)) continue;
    const simt::TensorCore core = CoreOf(device);
    for (const bool near_one : {false, true}) {
      for (const auto& [rows, inputs] :
           {std::pair{8, 16}, {1, 64}, {3, 1000}, {20, 90}, {70, 330}}) {
        TestMatrix x(rows, inputs), w(40, inputs);
        for (TestMatrix* matrix : {&x, &w}) {
          for (int r = 0; r < matrix->rows(); ++r) {
            for (int k = 0; k < inputs; ++k) matrix->at(r, k) = AnyBf16(near_one, random);
          }
        }
        const TestWeight weight(w, DType::kBF16);
        const TestMatrix out = Multiply(x, PackOne(backend(), weight), 40);
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < 40; ++c) {
            const float expected = ChainOf(core, x.row(r), weight.values().row(c), inputs);
            if (std::isnan(expected) && std::isnan(out.at(r, c))) continue;
            ASSERT_EQ(std::bit_cast<uint32_t>(out.at(r, c)), std::bit_cast<uint32_t>(expected))
                << "cuda:" << device << " K " << inputs << " at " << r << ", " << c << " of "
                << rows << ": " << out.at(r, c) << " in place of " << expected;
          }
        }
      }
    }
  }
}

// From 1 to 512 rows, with inputs that end anywhere in a step.
TEST_F(TensorCores, RowsHaveTheSameBitsInEveryBatch) {
  std::mt19937 random(22);
  for (const int device : {0, 1}) {
    if (!Open(device)) continue;
    for (const int inputs : {16, 72, 300, 561}) {
      const PackedWeight packed =
          PackOne(backend(), TestWeight(TestMatrix::Random(35, inputs, random), DType::kBF16));
      const TestMatrix x = TestMatrix::Random(512, inputs, random);
      const TestMatrix all = Multiply(x, packed, 35);
      for (const int count : {1, 2, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 257, 511}) {
        if (count > 65 && inputs != 300) continue;
        std::vector<int> some = Iota(count);
        for (int& row : some) row += 512 - count;
        EXPECT_TRUE(Multiply(x.Rows(some), packed, 35).SameBits(all.Rows(some)))
            << "cuda:" << device << " K " << inputs << " rows " << count;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
