#include "kernels/peak.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tandem {
namespace {

TEST(Peak, CountsEveryStep) {
  for (const DotInput input : kAllDotInputs) {
    const int64_t one = RunMultiplyAdds(input, 1);
    EXPECT_EQ(RunMultiplyAdds(input, 1000), 1000 * one) << NameOf(input);
  }
  EXPECT_GT(RunMultiplyAdds(DotInput::kF32, 1), 0);
}

TEST(Peak, MeasuresBf16WhereTheCpuHasBf16Products) {
  const std::vector<std::string> isas = CpuIsas();
  const bool has_kernels = std::find(isas.begin(), isas.end(), "avx512_bf16") != isas.end();
  EXPECT_EQ(RunMultiplyAdds(DotInput::kBF16, 1) > 0, has_kernels);
}

}  // namespace
}  // namespace tandem
