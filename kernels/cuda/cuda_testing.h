// What the tests of the CUDA backend share. They run on a device where there is one, and everywhere
// on the host (tests/simt), which also sees races and accesses outside of memory.
#ifndef TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
#define TANDEM_KERNELS_CUDA_CUDA_TESTING_H_

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/float16.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "kernels/kernel_testing.h"
#include "kernels/widen_row.h"

namespace tandem::cuda {

// Skipped where there is no device. Fails if an operation does.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = MakeCudaBackend(0);
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    backend_ = *std::move(made);
  }
  void TearDown() override {
    if (backend_ == nullptr) return;
    const absl::Status status = backend_->Synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  Backend& backend() { return *backend_; }

  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    auto buffer = backend_->Allocate(values.size() * sizeof(T));
    TANDEM_CHECK(buffer.ok());
    backend_->Upload({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)},
                     buffer->data());
    return *std::move(buffer);
  }
  template <typename T>
  std::vector<T> Download(const Buffer& buffer) {
    std::vector<T> values(buffer.size_bytes() / sizeof(T));
    backend_->Download(buffer.data(),
                       {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)});
    return values;
  }

  std::unique_ptr<Backend> backend_;
};

// A TestMatrix of at least one row on the device, the gaps between its rows too.
class DeviceMatrix {
 public:
  DeviceMatrix(Backend& backend, TestMatrix matrix) : backend_(backend), host_(std::move(matrix)) {
    auto buffer = backend.Allocate(bytes());
    TANDEM_CHECK(buffer.ok());
    buffer_ = *std::move(buffer);
    backend.Upload({reinterpret_cast<const std::byte*>(host_.row(0)), bytes()}, buffer_.data());
  }
  MatrixView view() {
    MatrixView view = host_.view();
    view.data = buffer_.data();
    return view;
  }
  const float* data() const { return static_cast<const float*>(buffer_.data()); }
  // What is on the device now. Nothing may have been written between its rows.
  TestMatrix Get() {
    TestMatrix got = host_;
    backend_.Download(buffer_.data(), {reinterpret_cast<std::byte*>(got.row(0)), bytes()});
    const int gap = static_cast<int>(got.view().stride) - got.cols();
    for (int r = 0; r + 1 < got.rows(); ++r) {
      for (int c = 0; c < gap; ++c) {
        EXPECT_TRUE(std::isnan(got.row(r)[got.cols() + c])) << "written behind row " << r;
      }
    }
    return got;
  }

 private:
  size_t bytes() const {
    const int64_t stride = host_.view().stride;
    return sizeof(float) * static_cast<size_t>((host_.rows() - 1) * stride + host_.cols());
  }

  Backend& backend_;
  TestMatrix host_;
  Buffer buffer_;
};

// Rows of blocks of random bytes, whose f16 numbers are about .02.
class RandomBlocks {
 public:
  RandomBlocks(DType dtype, int rows, int cols, std::mt19937& random)
      : dtype_(dtype), rows_(rows), cols_(cols), bytes_(rows * RowBytes(dtype, cols)) {
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    const int block_bytes = BlockShapeOf(dtype).bytes;
    std::normal_distribution<float> scale(0.0f, 0.02f);
    for (size_t block = 0; block < bytes_.size(); block += block_bytes) {
      for (const int place : F16Places(dtype)) {
        const uint16_t bits = FloatToF16(scale(random));
        std::memcpy(bytes_.data() + block + place, &bits, sizeof(bits));
      }
    }
  }
  DType dtype() const { return dtype_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  const std::byte* row(int r) const { return bytes_.data() + r * RowBytes(dtype_, cols_); }
  ConstMatrixView view() const { return {bytes_.data(), dtype_, rows_, cols_, cols_}; }
  std::vector<float> Widened(int r) const {
    std::vector<float> weights(cols_);
    WidenRow(row(r), dtype_, cols_, weights.data());
    return weights;
  }

 private:
  static std::vector<int> F16Places(DType dtype) {
    switch (dtype) {
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4K:
      case DType::kQ5K:
        return {0, 2};
      case DType::kQ2K:
        return {80, 82};
      case DType::kQ3K:
        return {108};
      case DType::kQ6K:
        return {208};
      default:
        return {0};
    }
  }

  DType dtype_;
  int rows_;
  int cols_;
  std::vector<std::byte> bytes_;
};

inline PackedWeight PackBlocks(Backend& backend, const RandomBlocks& weight,
                               const float* bias = nullptr) {
  auto packed = backend.Pack({{weight.view(), bias}}, PartOrder::kConcatenated);
  TANDEM_CHECK(packed.ok());
  return *std::move(packed);
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
