#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/cuda/operations.h"

namespace tandem::cuda {
namespace {

class Meter : public CudaTest {
 protected:
  DeviceMeter& meter() { return *backend().meter(); }
};

TEST_F(Meter, ReportsMemoryThatCanBeAllocated) {
  const auto free = backend().free_memory_bytes();
  ASSERT_TRUE(free.has_value());
  EXPECT_GT(*free, 1 << 20);
  EXPECT_TRUE(backend().Allocate(static_cast<size_t>(*free / 4)).ok());
}

// Stretches of one block, of parts of one, and of one block and a part.
TEST_F(Meter, ReadsEveryWordOnce) {
  for (const int num_words4 : {kReadBlockWords4, 1, 300, kReadBlockWords4 + 257}) {
    std::vector<uint32_t> words(4 * static_cast<size_t>(num_words4));
    uint32_t want = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = static_cast<uint32_t>(i + 1) * 2654435761u;
      want ^= words[i];
    }
    const Buffer data = Upload(words);
    const size_t num_sums = meter().NumReadSums(data.size_bytes());
    const Buffer sums = Upload(std::vector<uint32_t>(num_sums, 7));
    meter().Read(data.data(), data.size_bytes(), static_cast<uint32_t*>(sums.data()));
    uint32_t got = 0;
    for (const uint32_t sum : Download<uint32_t>(sums)) got ^= sum;
    EXPECT_EQ(got, want) << num_words4;
  }
}

// Recorded work does not run at once. Each replay runs it once; the first one is not timed.
TEST_F(Meter, ReplaysRecordedWork) {
  TestMatrix ones(1, 8);
  for (int i = 0; i < 8; ++i) ones.row(0)[i] = 1.0f;
  DeviceMatrix from(backend(), ones);
  DeviceMatrix sum(backend(), ones);
  std::vector<float> identity(64, 0.0f);
  for (int i = 0; i < 8; ++i) identity[9 * i] = 1.0f;
  const WeightPart part{.matrix = {identity.data(), DType::kF32, 8, 8, 8}};
  const auto weight = backend().Pack({&part, 1}, PartOrder::kConcatenated);
  ASSERT_TRUE(weight.ok());
  const auto seconds =
      meter().SecondsWithoutHost([&] { backend().MatMulAdd(from.view(), *weight, sum.view()); }, 3);
  ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  EXPECT_GT(*seconds, 0.0);
  EXPECT_EQ(sum.Get().row(0)[3], 1.0f + 4.0f);
}

}  // namespace
}  // namespace tandem::cuda
