// Replaces peak_x86.cc on other architectures.
#include "kernels/cpu/isa/simd_portable.h"
// The SIMD vocabulary above must be included first.
#include "kernels/peak.h"

namespace tandem {

int64_t RunMultiplyAdds(DotInput input, int64_t steps) {
  constexpr int kChains = 4;
  if (input != DotInput::kF32) return 0;
  Floats sums[kChains] = {};
  Floats x = Splat(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
    for (Floats& sum : sums) {
      sum = MulAdd(x, x, sum);
      asm volatile("" : "+m"(sum));  // keeps the compiler from merging steps
    }
  }
  return steps * kChains * kLanes;
}

}  // namespace tandem
