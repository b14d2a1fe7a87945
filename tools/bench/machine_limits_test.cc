#include "tools/bench/machine_limits.h"

#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

TEST(MachineLimits, TheSlowerOfReadingAndArithmeticIsTheBound) {
  MachineLimits::Series series;
  series.Add(4.0, /*min_reading=*/2.0, /*min_arithmetic=*/1.0, Place::kMemory);
  series.Add(8.0, 2.0, 1.0, Place::kMemory);
  series.Add(5.0, 4.0, 1.0, Place::kMemory);
  EXPECT_EQ(series.Result().ms, 5000.0);
  EXPECT_EQ(series.Result().of_limit, 0.5);  // of 0.5, 0.25 and 0.8
  EXPECT_EQ(series.Result().bound, "memory");
  MachineLimits::Series cached;
  cached.Add(1.0, 0.5, 0.25, Place::kCache);
  EXPECT_EQ(cached.Result().bound, "cache");
  cached.Add(1.0, 0.5, 0.9, Place::kCache);
  EXPECT_EQ(cached.Result().bound, "arithmetic");
  EXPECT_EQ(cached.Result().of_limit, 0.7);
}

TEST(MachineLimits, ComparesWithMeasuredLimits) {
  auto limits = MachineLimits::Create(2, 8 << 20);
  ASSERT_TRUE(limits.ok());
  MachineLimits::Series series;
  (*limits)->AddTime({.bytes = 1e6, .flops = 1e3}, 1e-3, &series);
  (*limits)->AddTime({.bytes = 1e6, .flops = 1e3}, 1e-3, &series);
  EXPECT_GT(series.Result().of_limit, 0.0);
  const JsonValue json = (*limits)->ToJson();
  EXPECT_GT(json["read_bytes_per_second"]["dram"], 0.0);
  EXPECT_GT(json["flops"]["f32"], 0.0);
  EXPECT_EQ(json["flops"]["bf16"].is_null(), !MachineLimits::Has(DotInput::kBF16));
  EXPECT_EQ(json["flops"]["int8"].is_null(), !MachineLimits::Has(DotInput::kInt8));
}

// One layer: queries 8 x 4, keys and values 4 x 4 each, output 4 x 8, feed-forward 3 x (6 x 4),
// head 10 x 4; two query heads of four.
ModelConfig OneLayer() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 10;
  config.hidden_size = 4;
  config.intermediate_size = 6;
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.windows = {0};
  return config;
}
constexpr double kBody = 8 * 4 + 2 * 4 * 4 + 4 * 8 + 3 * 6 * 4;
constexpr double kHead = 10 * 4;
constexpr double kAttended = 2 * 2 * 4;  // scores and sums of two heads of four

TEST(PassCounter, CountsMatricesOnceAndOperationsPerRow) {
  for (const bool tied : {false, true}) {
    ModelConfig config = OneLayer();
    config.tied_embeddings = tied;
    const PassCounter counter(config, 1000, 32, DType::kF32, false);
    const Demand step = counter.Of({.rows = 1, .context = 9, .logit_rows = 1});
    EXPECT_EQ(step.bytes, 1000 + 9 * 32);
    EXPECT_EQ(step.flops, 2 * (kBody + kHead + kAttended * 10));
    const Demand verify = counter.Of({.rows = 3, .context = 9, .logit_rows = 3});
    EXPECT_EQ(verify.bytes, step.bytes);
    EXPECT_EQ(verify.flops, 2 * (3 * kBody + 3 * kHead + kAttended * (10 + 11 + 12)));
    const Demand batch = counter.Of({.rows = 1, .context = 9, .logit_rows = 1, .batch = 4});
    EXPECT_EQ(batch.bytes, 1000 + 4 * 9 * 32);
    EXPECT_EQ(batch.flops, 4 * step.flops);
  }
}

TEST(PassCounter, PromptReadsTheMatricesOncePerChunk) {
  const PassCounter counter(OneLayer(), 1000, 32, DType::kF32, false);
  const Demand prompt = counter.OfPrompt(5, 2);
  EXPECT_EQ(prompt.bytes, 3 * 1000 + (0 + 2 + 4) * 32);
  EXPECT_EQ(prompt.flops, 2 * (5 * kBody + kHead + kAttended * (1 + 2 + 3 + 4 + 5)));
}

}  // namespace
}  // namespace tandem
