#include "bench/bench_device.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/random_passes.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

DeviceBenchmarkOptions Small() {
  DeviceBenchmarkOptions options;
  options.shape = *RandomModelShape::Parse("ffn=192");  // what no layout pads
  options.ops = {std::begin(kDeviceOps), std::end(kDeviceOps)};
  options.rows = {1, 3};
  options.batches = {1, 2};
  options.contexts = {0, 20};
  options.repeat = 1;
  options.sample_seconds = 0.0;
  options.buffer_bytes = 1 << 20;
  return options;
}

std::unique_ptr<Backend> Cpu() { return *MakeCpuBackend({.num_threads = 1}); }

TEST(BenchDevice, MeasuresEverythingThatIsAskedFor) {
  const auto backend = Cpu();
  std::vector<DeviceResult> results;
  const absl::Status status = RunDeviceBenchmark(
      Small(), backend.get(), [&](const DeviceResult& result) { results.push_back(result); });
  ASSERT_TRUE(status.ok()) << status;
  // Reading and copying; no sampling, for rows are the host's; five weights with two numbers of
  // rows; at two contexts a pass of 1 and 3 rows and one of two sequences, and attention where
  // there is something to look at.
  ASSERT_EQ(results.size(), 2u + 5 * 2 + 2 * 3 + 3);
  EXPECT_EQ(NumDeviceResults(Small(), backend.get()), 2 + 5 * 2 + 2 * 3 + 3);
  EXPECT_EQ(results[0].op, "read");
  EXPECT_EQ(results[1].op, "copy");
  EXPECT_EQ(results[1].bytes, 1 << 20);
  const DeviceResult& qkv = results[3];
  EXPECT_EQ(qkv.part, "qkv");
  EXPECT_EQ(qkv.rows, 3);
  EXPECT_EQ(qkv.bytes, 2 * 128 * 64);
  EXPECT_EQ(qkv.flops, 2.0 * 3 * 128 * 64);
  const DeviceResult& attention = results[15];
  EXPECT_EQ(attention.op, "attention");
  EXPECT_EQ(attention.context, 20);
  EXPECT_EQ(attention.bytes, 2 * 21 * 2 * 16 * 2);
  const DeviceResult& both = results.back();
  EXPECT_EQ(both.part, "decode");
  EXPECT_EQ(both.batch, 2);
  // The matrices but for the embedding, which is the head; keys and values of 21 tokens, twice.
  EXPECT_EQ(both.bytes, 2.0 * (2 * (128 * 64 + 64 * 64 + 3 * 64 * 192) + 320 * 64) +
                            2.0 * 2 * (2 * 21 * 2 * 16 * 2));
  for (const DeviceResult& result : results) {
    EXPECT_GT(result.ms, 0.0) << result.op;
    EXPECT_TRUE(std::isnan(result.device_ms));  // the CPU records nothing
    EXPECT_GT(result.of_read(), 0.0);
  }
}

// As the progress that is shown meanwhile needs it.
TEST(BenchDevice, TellsHowManyResultsThereWillBe) {
  const auto backend = Cpu();
  for (const std::string_view op : kDeviceOps) {
    DeviceBenchmarkOptions options = Small();
    options.ops = {op};
    int count = 0;
    const absl::Status status =
        RunDeviceBenchmark(options, backend.get(), [&](const DeviceResult&) { ++count; });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(NumDeviceResults(options, backend.get()), count) << op;
  }
}

// What is timed is a model's pass: finite logits, the same of every pass and of every row alone.
TEST(RandomPasses, ARowsLogitsDoNotDependOnHowOftenOrBesideWhatItIsComputed) {
  const auto backend = Cpu();
  const auto passes = RandomPasses::Create(*RandomModelShape::Parse("tiny"), std::nullopt,
                                           KvDType::kBF16, 4, backend.get());
  ASSERT_TRUE(passes.ok()) << passes.status();
  ASSERT_TRUE((*passes)->SetSequences(1, 20, 1).ok());
  (*passes)->Pass();
  const std::vector<float> alone = (*passes)->Logits();
  (*passes)->Pass();
  EXPECT_EQ((*passes)->Logits(), alone);
  ASSERT_TRUE((*passes)->SetSequences(4, 20, 1).ok());
  (*passes)->Pass();
  const std::vector<float> four = (*passes)->Logits();
  ASSERT_EQ(four.size(), 4 * alone.size());
  EXPECT_EQ(std::memcmp(four.data(), alone.data(), alone.size() * sizeof(float)), 0);
  for (const float logit : four) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_NE(four[alone.size()], four[0]);  // the second row begins with other numbers
}

}  // namespace
}  // namespace tandem
