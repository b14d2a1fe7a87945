// Shared parts of the tests of the CUDA backend. The tests run on a device if there is one, and
// always on the host (tests/simt), which also detects races and out-of-bounds accesses.
#ifndef TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
#define TANDEM_KERNELS_CUDA_CUDA_TESTING_H_

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_testing.h"
#include "kernels/cuda_devices.h"
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
    auto made = MakeCudaBackend(device, CudaOptions{.keeps_f16 = true});
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
    return UploadTo(*backend_, values);
  }
  template <typename T>
  std::vector<T> Download(const Buffer& buffer) {
    return DownloadFrom<T>(*backend_, buffer);
  }

  std::unique_ptr<Backend> backend_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
