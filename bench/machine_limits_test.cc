#include "bench/machine_limits.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

TEST(MachineLimits, TheLongerOfReadingAndArithmeticBoundsAnOperation) {
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

TEST(MachineLimits, ComparesWithWhatItMeasures) {
  auto limits = MachineLimits::Create(2, 8 << 20);
  ASSERT_TRUE(limits.ok());
  MachineLimits::Series series;
  (*limits)->AddTime({.bytes = 1e6, .flops = 1e3}, 1e-3, &series);
  (*limits)->AddTime({.bytes = 1e6, .flops = 1e3}, 1e-3, &series);
  EXPECT_GT(series.Result().of_limit, 0.0);
  const nlohmann::ordered_json json = (*limits)->ToJson();
  EXPECT_GT(json["read_bytes_per_second"]["dram"], 0.0);
  EXPECT_GT(json["flops"]["f32"], 0.0);
  EXPECT_EQ(json["flops"]["bf16"].is_null(), !MachineLimits::Has(DotInput::kBF16));
  EXPECT_EQ(json["flops"]["int8"].is_null(), !MachineLimits::Has(DotInput::kInt8));
}

}  // namespace
}  // namespace tandem
