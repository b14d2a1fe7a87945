#include "engine/draft_format.h"

#include "gtest/gtest.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

constexpr double kTargetBytes = 1000e6;

Quantization Chosen(double bytes, double bits, bool has_exact_activations = false) {
  return ChooseDraftFormat({.bytes = bytes, .bits_per_weight = bits}, kTargetBytes,
                           has_exact_activations);
}

TEST(DraftFormat, IsFourBitsIfTheyPayOff) {
  EXPECT_EQ(Chosen(700e6, 16.0), Quantization::kInt4);
  EXPECT_EQ(Chosen(400e6, 8.5), Quantization::kInt4);
  EXPECT_EQ(Chosen(400e6, 8.5, /*has_exact_activations=*/true), Quantization::kNone);
  EXPECT_EQ(Chosen(400e6, 4.5), Quantization::kNone);  // has as few bits already
  EXPECT_EQ(Chosen(300e6, 4.7), Quantization::kNone);  // gains less than it loses
  EXPECT_EQ(Chosen(20e6, 16.0), Quantization::kNone);  // takes little time anyway
}

TEST(DraftFormat, MeasuresTheMatricesOfLayers) {
  const auto floats = DraftMatricesOf({}, GoldenGgufPath("llama-small.F32.gguf"));
  const auto blocks = DraftMatricesOf({}, GoldenGgufPath("llama-small.Q8_0.gguf"));
  ASSERT_TRUE(floats.ok() && blocks.ok());
  EXPECT_EQ(floats->bits_per_weight, 32.0);
  EXPECT_EQ(blocks->bits_per_weight, 8.5);
  EXPECT_EQ(blocks->bytes / floats->bytes, 8.5 / 32.0);
  EXPECT_EQ(DraftMatricesOf({}, "/nowhere").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
