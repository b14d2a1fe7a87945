#include "kernels/number_formats.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem {
namespace {

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(NumberFormats, NamesOfBlocksAreThoseOfTheirDType) {
  for (int i = static_cast<int>(DType::kQ8_0); i <= static_cast<int>(DType::kIq4Xs); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto parsed = ParseQuantization(NameOf(dtype));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(BlockTypeOf(*parsed), dtype);
    EXPECT_EQ(NameOf(*parsed), NameOf(dtype));
  }
  EXPECT_EQ(BlockTypeOf(Quantization::kNone), std::nullopt);
  EXPECT_EQ(BlockTypeOf(*ParseDraftQuantization("int8")), DType::kQ8_0);
  EXPECT_EQ(BlockTypeOf(*ParseDraftQuantization("int4")), DType::kQ4K);
}

TEST(NumberFormats, NamesOfCachesAreThoseOfTheirDType) {
  for (const KvDType dtype : kAllKvDTypes) {
    EXPECT_EQ(KvDTypeOf(*ParseKvCacheType(NameOf(dtype)), KvDType::kF32), dtype);
    EXPECT_EQ(KvDTypeOf(KvCacheType::kAuto, dtype), dtype);
    EXPECT_EQ(*ParseKvDType(NameOf(dtype)), dtype);
  }
}

TEST(NumberFormats, OtherNamesAreErrors) {
  const std::string blocks =
      "none, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k, int8, "
      "int4";
  EXPECT_EQ(ErrorOf(ParseCpuCompute("foo").status()),
            "compute: \"foo\" is not one of auto, f32, bf16");
  EXPECT_EQ(ErrorOf(ParseQuantization("auto").status()),
            "quantize: \"auto\" is not one of " + blocks);
  EXPECT_EQ(ErrorOf(ParseDraftQuantization("").status()),
            "draft_quantize: \"\" is not one of auto, " + blocks);
  EXPECT_EQ(ErrorOf(ParseKvCacheType("int4").status()),
            "kv_cache: \"int4\" is not one of auto, f32, bf16, int8");
  EXPECT_EQ(ErrorOf(ParseKvDType("auto").status()),
            "kv_cache: \"auto\" is not one of f32, bf16, int8");
}

}  // namespace
}  // namespace tandem
