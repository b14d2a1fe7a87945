#include "tools/bench/operation_table.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;

OperationOptions Small() {
  return {.config = RandomModelShape::Parse("ffn=192")->Config(),  // layouts do not pad these sizes
          .dtypes = {DType::kF32, DType::kBF16},
          .kv_dtypes = {std::begin(kAllKvDTypes), std::end(kAllKvDTypes)},
          .rows = {1, 5},
          .contexts = {3, 40},
          .working_set_bytes = 100'000,  // a few copies
          .run = {.repeat = 1, .sample_seconds = 0.0}};
}

// Adds some operations to a table and runs it on one core.
class OperationTables : public testing::Test {
 protected:
  std::vector<OperationResult> Run(const OperationOptions& options,
                                   const std::function<void(OperationTable*)>& add) {
    OperationTable table(options, backend_.get(), limits_.get());
    add(&table);
    std::vector<OperationResult> results;
    const absl::Status status =
        table.Run([&](const OperationResult& result) { results.push_back(result); });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(static_cast<int>(results.size()), table.num_operations());
    for (const OperationResult& result : results) {
      EXPECT_GT(result.time.ms, 0.0) << result.operation.op;
      EXPECT_TRUE(std::isnan(result.device_ms));  // the CPU records nothing
    }
    return results;
  }

  const std::unique_ptr<Backend> backend_ =
      *MakeCpuBackend({.num_threads = 1, .compute = CpuCompute::kF32});
  const std::unique_ptr<MachineLimits> limits_ = *MachineLimits::Create(1, 8 << 20);
};

TEST_F(OperationTables, CountsTheBytesAndOperationsOfAProduct) {
  for (const bool norms : {false, true}) {
    OperationOptions options = Small();
    options.norms_rows = norms;
    const auto results = Run(options, [](OperationTable* table) {
      EXPECT_TRUE(table->AddProducts("matmul", "--dtypes").ok());
    });
    ASSERT_EQ(results.size(), 2u * 5 * 2);  // dtypes, weights, rows
    const Operation& gate_up = results[4].operation;
    EXPECT_EQ(gate_up.part, "gate_up");
    EXPECT_THAT(gate_up.shape, ElementsAre(384, 64));
    EXPECT_EQ(gate_up.rows, 1);
    EXPECT_EQ(gate_up.demand.bytes, 384 * 64 * 4);
    EXPECT_EQ(gate_up.demand.flops, 2 * 384 * 64);
    const Operation& bf16 = results[10 + 5].operation;
    EXPECT_EQ(bf16.dtype, DType::kBF16);
    EXPECT_EQ(bf16.rows, 5);
    EXPECT_EQ(bf16.demand.bytes, 384 * 64 * 2);
    EXPECT_EQ(bf16.demand.flops, 5 * 2 * 384 * 64);
    for (const OperationResult& result : results) {
      EXPECT_GT(result.time.of_limit, 0.0);
      EXPECT_DOUBLE_EQ(result.bytes_per_second(),
                       result.operation.demand.bytes / result.time.ms * 1e3);
    }
  }
}

TEST_F(OperationTables, QuantisesWeights) {
  OperationOptions options = Small();
  options.dtypes = {DType::kBF16};
  options.quantized = DType::kQ8_0;
  const auto results = Run(options, [](OperationTable* table) {
    EXPECT_TRUE(table->AddProducts("product", "--quantize").ok());
  });
  EXPECT_EQ(results[0].operation.dtype, DType::kQ8_0);
  options.config = RandomModelShape::Parse("ffn=50")->Config();
  OperationTable table(options, backend_.get(), nullptr);
  EXPECT_EQ(
      table.AddProducts("product", "--quantize").message(),
      "--quantize: found q8_0, allowed: floats, because down has 50 inputs, not a multiple of "
      "32");
}

TEST_F(OperationTables, AttentionReadsTheContextOfEveryRow) {
  const auto add = [](OperationTable* table) { table->AddAttention(); };
  const auto results = Run(Small(), add);
  // For each cache; five rows do not fit a context of three tokens.
  ASSERT_EQ(results.size(), 3u * (1 + 2));
  EXPECT_EQ(results[0].operation.demand.bytes, 2 * 3 * 2 * 16 * 4);
  EXPECT_EQ(results[0].operation.demand.flops, 4 * 3 * 4 * 16);
  EXPECT_EQ(results[1].operation.dtype, DType::kBF16);
  EXPECT_EQ(results[1].operation.demand.bytes, 2 * 3 * 2 * 16 * 2);
  EXPECT_EQ(results[2].operation.dtype, DType::kInt8);
  EXPECT_EQ(results[2].operation.demand.bytes, 2 * 3 * 2 * (16 + 4));
  EXPECT_EQ(results[4].operation.context, 40);
  EXPECT_EQ(results[4].operation.demand.flops, 4 * (36 + 37 + 38 + 39 + 40) * 4 * 16);
  // Rows that follow the context, and two sequences of one row each.
  OperationOptions options = Small();
  options.rows_follow_context = true;
  options.kv_dtypes = {KvDType::kBF16};
  options.batches = {1, 2};
  options.contexts = {0, 20};  // an empty context is left out
  const auto following = Run(options, add);
  ASSERT_EQ(following.size(), 3u);
  EXPECT_EQ(following[0].operation.demand.bytes, 2 * 21 * 2 * 16 * 2);
  EXPECT_EQ(following[1].operation.demand.bytes, 2 * 25 * 2 * 16 * 2);
  EXPECT_EQ(following[1].operation.demand.flops, 4 * (21 + 22 + 23 + 24 + 25) * 4 * 16);
  EXPECT_EQ(following[2].operation.batch, 2);
  EXPECT_EQ(following[2].operation.demand.bytes, 2 * following[0].operation.demand.bytes);
  // Layers with a sliding window are measured too.
  options.config = RandomModelShape::Parse("family=mistral,window=8")->Config();
  const auto windowed = Run(options, add);
  ASSERT_EQ(windowed.size(), 6u);
  EXPECT_EQ(windowed[4].operation.part, "windowed");
  EXPECT_EQ(windowed[4].operation.demand.bytes, 2 * (8 + 4) * 2 * 16 * 2);
}

TEST_F(OperationTables, AnErrorBeforeASampleEndsTheRun) {
  OperationOptions options = Small();
  int num_samples = 0;
  options.run.before_sample = [&](const Operation& operation) {
    EXPECT_EQ(operation.op, "matmul");
    return ++num_samples <= 5 ? absl::OkStatus() : absl::CancelledError("stopped");
  };
  OperationTable table(options, backend_.get(), limits_.get());
  ASSERT_TRUE(table.AddProducts("matmul", "--dtypes").ok());
  int num_results = 0;
  const absl::Status status = table.Run([&](const OperationResult&) { ++num_results; });
  EXPECT_EQ(status.message(), "stopped");
  EXPECT_EQ(num_results, 4);  // the complete entries, of two operations each
}

TEST_F(OperationTables, RunsMemoryNormsAndSampling) {
  const auto results = Run(Small(), [](OperationTable* table) {
    table->AddMemory(4 << 20);
    table->AddNorms();
    table->AddHostSampling();
    table->AddDeviceSampling();  // adds nothing: the rows are on the host
    table->AddExperts();         // adds nothing: the model does not have experts
  });
  ASSERT_EQ(results.size(), 2u + 2u + 3u);
  EXPECT_EQ(results[0].operation.op, "read");
  EXPECT_EQ(results[1].operation.op, "copy");
  EXPECT_EQ(results[1].operation.demand.bytes, 4 << 20);
  EXPECT_EQ(results[3].operation.demand.bytes, 5 * 64 * 4);
  EXPECT_EQ(results[6].operation.op, "sample");
  EXPECT_EQ(results[6].operation.demand.bytes, 320 * 4);
}

TEST_F(OperationTables, ExpertsCountOnlyTheChosenOnes) {
  OperationOptions options = Small();
  options.config =
      RandomModelShape::Parse("family=qwen3_moe,experts=4,experts_per_token=2,expert_ffn=64")
          ->Config();
  options.dtypes = {DType::kF32};
  const auto results = Run(options, [](OperationTable* table) { table->AddExperts(); });
  ASSERT_EQ(results.size(), 2u);
  const double expert = 3 * 64 * 64 * 4;
  EXPECT_EQ(results[0].operation.demand.bytes, 2 * expert);
  EXPECT_GT(results[1].operation.demand.bytes, 2 * expert);
  EXPECT_LE(results[1].operation.demand.bytes, 4 * expert);
  EXPECT_EQ(results[1].operation.demand.flops, 5 * 2 * 2 * 3 * 64 * 64);
}

TEST_F(OperationTables, PassesHaveOnlyRowsThatFitTheContext) {
  const RandomModelShape shape = *RandomModelShape::Parse("ffn=192,context=23");
  const auto model =
      *Transformer::Load("random", shape.Config(), MakeRandomWeights(shape, 5), backend_.get());
  OperationOptions options = Small();
  options.rows = {1, 3, 4};
  options.batches = {1, 2};
  options.contexts = {0, 20};
  const auto results = Run(options, [&](OperationTable* table) {
    table->AddPasses(model.get(), KvDType::kBF16, /*most_verified=*/3);
  });
  ASSERT_EQ(results.size(), 4u + 3u);
  EXPECT_EQ(results[0].operation.part, "decode");
  EXPECT_EQ(results[1].operation.part, "verify");
  EXPECT_EQ(results[2].operation.part, "prefill");
  const Operation& both = results[6].operation;
  EXPECT_EQ(both.part, "decode");
  EXPECT_EQ(both.batch, 2);
  EXPECT_EQ(both.context, 20);
  // All matrices, with the embedding once as the head, and keys and values of 20 tokens, twice.
  EXPECT_EQ(both.demand.bytes, 2.0 * (2 * (128 * 64 + 64 * 64 + 3 * 64 * 192) + 320 * 64) +
                                   2.0 * 2 * (2 * 20 * 2 * 16 * 2));
  // A time without an earlier one-row pass is NaN; a one-row pass compared with itself is 1.
  OneRow one_row;
  EXPECT_TRUE(std::isnan(one_row.Of(results[1])));
  EXPECT_EQ(one_row.Of(results[0]), 1.0);
  EXPECT_EQ(one_row.Of(results[1]), results[1].time.ms / results[0].time.ms);
  EXPECT_TRUE(std::isnan(one_row.Of(results[5])));  // at another context
}

// The timed pass is a real one: its logits are finite, and a repeated pass has the same logits.
TEST_F(OperationTables, RepeatedPassHasTheSameLogits) {
  for (const std::optional<DType> quantized : {std::optional<DType>(), {DType::kQ4_0}}) {
    const RandomModelShape shape = *RandomModelShape::Parse("tiny");
    const auto model = *Transformer::Load("random", shape.Config(),
                                          MakeRandomWeights(shape, 5, quantized), backend_.get());
    EXPECT_EQ(model->dtype(), quantized.value_or(DType::kBF16));
    const auto cache =
        *PagedKvCache::Create(backend_.get(), model->kv_layout(16, KvDType::kBF16), 1);
    KvSequence kv = cache->NewSequence();
    const TokenId tokens[] = {1, 8, 15};
    const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = 3};
    const auto logits = model->Forward({&request, 1});
    ASSERT_TRUE(logits.ok()) << logits.status();
    const auto* const values = static_cast<float*>(logits->data);
    const std::vector<float> first(values, values + 3 * logits->cols);
    for (const float logit : first) ASSERT_TRUE(std::isfinite(logit));
    EXPECT_NE(first[0], first[logits->cols]);
    std::memset(logits->data, 0, first.size() * sizeof(float));
    model->RepeatPass();
    EXPECT_EQ(std::memcmp(values, first.data(), first.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace tandem
