#include "model/host_logits.h"

#include <cmath>

#include "gtest/gtest.h"
#include "model/sampling.h"

namespace tandem {
namespace {

constexpr int kVocab = 37;

absl::Span<const float> LogitsRow(const MatrixView& logits, int row) {
  return {static_cast<const float*>(logits.data) + row * logits.stride,
          static_cast<size_t>(logits.cols)};
}

TEST(HostLogits, SetLargestReplacesAnyRow) {
  HostLogits logits;
  logits.Resize(2, kVocab);
  for (const TokenId largest : {5, 0, 36, -1, 5, -1, 0}) {
    logits.SetArgMax(1, largest);
    const auto row = LogitsRow(logits.view(), 1);
    EXPECT_EQ(ArgMax(row), largest);
    int finite = 0;
    for (const float value : row) finite += std::isfinite(value) ? 1 : 0;
    EXPECT_EQ(finite, largest < 0 ? 0 : 1);
    if (largest == 36) std::ranges::fill(logits.Whole(1, 1), 3.0f);
  }
}

TEST(HostLogits, KeepsRowsWhenResized) {
  HostLogits logits;
  logits.Resize(3, kVocab);
  for (float& value : logits.Whole(0, 3)) value = 1.0f;
  logits.Whole(2, 1)[7] = 2.0f;
  logits.SetArgMax(1, 9);
  for (const int num_rows : {3, 1, 3}) logits.Resize(num_rows, kVocab);
  logits.SetArgMax(1, 4);
  logits.SetArgMax(2, 3);
  EXPECT_EQ(ArgMax(LogitsRow(logits.view(), 0)), 0);
  EXPECT_EQ(ArgMax(LogitsRow(logits.view(), 1)), 4);
  EXPECT_EQ(ArgMax(LogitsRow(logits.view(), 2)), 3);
  EXPECT_EQ(logits.view().rows, 3);
}

}  // namespace
}  // namespace tandem
