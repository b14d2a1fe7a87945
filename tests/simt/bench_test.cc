// `tandem bench device` on the device's backend: that what it enqueues is what the device takes.
#include <cmath>
#include <memory>

#include "bench/bench_device.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tandem {
namespace {

TEST(BenchDevice, RunsOnADevice) {
  auto backend = MakeCudaBackend(0);
  if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  DeviceBenchmarkOptions options;
  options.shape = *RandomModelShape::Parse("layers=1,hidden=32,ffn=32,vocab=257,family=qwen3");
  options.ops = {std::begin(kDeviceOps), std::end(kDeviceOps)};
  options.quantized = DType::kQ4K;
  options.kv_dtype = KvDType::kInt8;
  options.rows = {1, 2};
  options.batches = {2};
  options.contexts = {3};
  options.repeat = 1;
  options.sample_seconds = 0.0;
  options.buffer_bytes = 1 << 16;
  int num_results = 0;
  const absl::Status status =
      RunDeviceBenchmark(options, backend->get(), [&](const DeviceResult& result) {
        ++num_results;
        EXPECT_GT(result.best_ms(), 0.0);
        EXPECT_TRUE(std::isnan(result.reference_ms));  // of blocks
      });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(num_results, 2 + 4 * 2 + 5 * 2 + 2 * 3);
}

}  // namespace
}  // namespace tandem
