#include "bench/bench_kernels.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

KernelBenchmarkOptions SmallKernels() {
  KernelBenchmarkOptions options;
  options.shapes = {
      .hidden = 64, .ffn = 128, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 320};
  options.dtypes = {DType::kF32, DType::kBF16};
  options.rows = {1, 5};
  options.contexts = {3, 40};
  options.repeat = 1;
  options.working_set_bytes = 100'000;  // a few copies
  return options;
}

class BenchKernels : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
    ASSERT_TRUE(backend.ok());
    backend_ = *std::move(backend);
    auto limits = MachineLimits::Create(1, 8 << 20);
    ASSERT_TRUE(limits.ok());
    limits_ = *std::move(limits);
  }
  std::vector<KernelResult> Run(const KernelBenchmarkOptions& options) {
    int num_samples = 0;
    auto results =
        RunKernelBenchmark(options, backend_.get(), limits_.get(), [&] { ++num_samples; });
    EXPECT_TRUE(results.ok()) << results.status();
    EXPECT_EQ(num_samples, NumKernelSamples(options));
    return *std::move(results);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<MachineLimits> limits_;
};

TEST_F(BenchKernels, CountsWhatAProductReadsAndComputes) {
  KernelBenchmarkOptions options = SmallKernels();
  options.ops = {"matmul"};
  const std::vector<KernelResult> results = Run(options);
  ASSERT_EQ(results.size(), 2u * 5 * 2);  // dtypes, weights, rows
  const KernelResult& gate_up = results[4];
  EXPECT_EQ(gate_up.part, "gate_up");
  EXPECT_THAT(gate_up.shape, ElementsAre(256, 64));
  EXPECT_EQ(gate_up.rows, 1);
  EXPECT_EQ(gate_up.demand.bytes, 256 * 64 * 4);
  EXPECT_EQ(gate_up.demand.flops, 2 * 256 * 64);
  const KernelResult& bf16 = results[10 + 5];
  EXPECT_EQ(bf16.dtype, DType::kBF16);
  EXPECT_EQ(bf16.rows, 5);
  EXPECT_EQ(bf16.demand.bytes, 256 * 64 * 2);
  EXPECT_EQ(bf16.demand.flops, 5 * 2 * 256 * 64);
  for (const KernelResult& result : results) {
    EXPECT_GT(result.time.ms, 0.0);
    EXPECT_GT(result.time.of_limit, 0.0);
    EXPECT_DOUBLE_EQ(result.bytes_per_second(), result.demand.bytes / result.time.ms * 1e3);
  }
}

TEST_F(BenchKernels, AttentionSeesWhatEveryRowMaySee) {
  KernelBenchmarkOptions options = SmallKernels();
  options.ops = {"attention"};
  const std::vector<KernelResult> results = Run(options);
  // Of each cache; five rows do not fit a context of three tokens.
  ASSERT_EQ(results.size(), 3u * (1 + 2));
  EXPECT_EQ(results[0].demand.bytes, 2 * 3 * 2 * 16 * 4);
  EXPECT_EQ(results[0].demand.flops, 4 * 3 * 4 * 16);
  EXPECT_EQ(results[1].dtype, DType::kBF16);
  EXPECT_EQ(results[1].demand.bytes, 2 * 3 * 2 * 16 * 2);
  EXPECT_EQ(results[2].dtype, DType::kInt8);
  EXPECT_EQ(results[2].demand.bytes, 2 * 3 * 2 * (16 + 4));
  EXPECT_EQ(results[4].context, 40);
  EXPECT_EQ(results[4].demand.flops, 4 * (36 + 37 + 38 + 39 + 40) * 4 * 16);
}

TEST_F(BenchKernels, RunsNormsAndSampling) {
  KernelBenchmarkOptions options = SmallKernels();
  options.ops = {"rms_norm", "sample"};
  const std::vector<KernelResult> results = Run(options);
  ASSERT_EQ(results.size(), 2u + 3u);
  EXPECT_EQ(results[1].demand.bytes, 5 * 64 * 4);
  EXPECT_EQ(results[4].op, "sample");
  EXPECT_EQ(results[4].demand.bytes, 320 * 4);
}

}  // namespace
}  // namespace tandem
