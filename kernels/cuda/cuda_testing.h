// Shared parts of the tests of the CUDA backend. The tests run on a device if there is one, and
// always on the host (tests/simt), which also detects races and out-of-bounds accesses.
#ifndef TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
#define TANDEM_KERNELS_CUDA_CUDA_TESTING_H_

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_testing.h"
#include "kernels/kernel_testing.h"

namespace tandem::cuda {

// Skips its tests without a device. Fails a test if an operation fails.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Open(0)) GTEST_SKIP() << "no device";
  }
  // The host has two devices, with the tensor cores of Hopper and Ampere (tests/simt/launches.h).
  bool Open(int device) {
    auto made = MakeCudaBackend(device);
    if (made.ok()) backend_ = *std::move(made);
    return made.ok();
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

// A TestMatrix of at least one row, with the gaps between its rows, on the device.
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
  // Downloads the matrix. Expects that the gaps between its rows were not written.
  TestMatrix Get() {
    TestMatrix got = host_;
    backend_.Download(buffer_.data(), {reinterpret_cast<std::byte*>(got.row(0)), bytes()});
    const int gap = static_cast<int>(got.view().stride) - got.cols();
    for (int r = 0; r + 1 < got.rows(); ++r) {
      for (int c = 0; c < gap; ++c) {
        EXPECT_TRUE(std::isnan(got.row(r)[got.cols() + c])) << "written after row " << r;
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

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
