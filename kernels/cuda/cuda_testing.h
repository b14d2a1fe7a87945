// Shared parts of the tests of the CUDA backend. The tests run on a device if there is one, and
// always on the host (tests/simt), which also detects races and out-of-bounds accesses.
#ifndef TANDEM_KERNELS_CUDA_CUDA_TESTING_H_
#define TANDEM_KERNELS_CUDA_CUDA_TESTING_H_

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/block_testing.h"
#include "kernels/cuda_devices.h"
#include "kernels/kernel_testing.h"

namespace tandem::cuda {

// The factor by which a norm multiplies a row: the reference of the order in warp_math.cuh.
inline float NormFactorOf(const float* x, int cols, float epsilon) {
  const auto at = [&](int c) { return c < cols ? x[c] : 0.0f; };
  const auto add_others = [](std::vector<float>* sums, int mask) {
    const std::vector<float> before = *sums;
    for (int i = 0; i < std::ssize(before); ++i) (*sums)[i] = before[i] + before[i ^ mask];
  };
  std::vector<float> chains(32, 0.0f);
  for (int first = 0; first < cols; first += 16) {
    std::vector<float> tile(8);
    for (int g = 0; g < 8; ++g) {
      const float low = at(first + g), high = at(first + g + 8);
      tile[g] = std::fma(high, high, low * low);
    }
    for (const int mask : {1, 2, 4}) add_others(&tile, mask);
    float& chain = chains[first / 16 % 32];
    chain = chain + tile[0];
  }
  for (const int mask : {16, 8, 4, 2, 1}) add_others(&chains, mask);
  return 1.0f / std::sqrt(chains[0] / static_cast<float>(cols) + epsilon);
}

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
