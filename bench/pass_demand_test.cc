#include "bench/pass_demand.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

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

TEST(PassCounter, CountsMatricesOnceAndEveryRowsOperations) {
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

TEST(PassCounter, APromptReadsTheMatricesOnceForEachChunk) {
  const PassCounter counter(OneLayer(), 1000, 32, DType::kF32, false);
  const Demand prompt = counter.OfPrompt(5, 2);
  EXPECT_EQ(prompt.bytes, 3 * 1000 + (0 + 2 + 4) * 32);
  EXPECT_EQ(prompt.flops, 2 * (5 * kBody + kHead + kAttended * (1 + 2 + 3 + 4 + 5)));
}

}  // namespace
}  // namespace tandem
