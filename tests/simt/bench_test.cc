// The operations of `tandem bench device` on the device's backend: everything that they enqueue
// must run there.
#include <cmath>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tools/bench/operation_table.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

TEST(BenchDevice, RunsOnADevice) {
  auto backend = MakeCudaBackend(0);
  if (!backend.ok()) GTEST_SKIP() << backend.status().message();
  const RandomModelShape shape =
      *RandomModelShape::Parse("layers=1,hidden=32,ffn=32,vocab=257,family=qwen3");
  const OperationOptions options{.config = shape.Config(),
                                 .dtypes = {shape.dtype},
                                 .quantized = DType::kQ4K,
                                 .kv_dtypes = {KvDType::kInt8},
                                 .rows = {1, 2},
                                 .batches = {2},
                                 .contexts = {3},
                                 .rows_follow_context = true,
                                 .norms_rows = true,
                                 .working_set_bytes = 1 << 15,
                                 .run = {.repeat = 1, .sample_seconds = 0.0}};
  OperationTable table(options, backend->get(), nullptr);
  table.AddMemory(1 << 16);
  table.AddDeviceSampling();
  ASSERT_TRUE(table.AddProducts("product", "--quantize").ok());
  table.AddAttention();
  const auto model = *Transformer::Load("random", options.config,
                                        MakeRandomWeights(shape, 5, DType::kQ4K), backend->get());
  table.AddPasses(model.get(), KvDType::kInt8, std::numeric_limits<int>::max());
  int num_results = 0;
  const absl::Status status = table.Run([&](const OperationResult& result) {
    ++num_results;
    EXPECT_GT(result.best_ms(), 0.0);
    // Part of sampling runs on the host.
    EXPECT_EQ(std::isnan(result.device_ms), result.operation.op == "sampling");
    EXPECT_TRUE(
        std::isnan(result.operation.reference_ms));  // block formats do not have a reference
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(num_results, 2 + 4 * 2 + 5 * 2 + 2 * 3);
}

}  // namespace
}  // namespace tandem
