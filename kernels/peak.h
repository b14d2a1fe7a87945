// How much arithmetic this machine can do when nothing else holds it up: what benchmarks compare
// products with.
#ifndef TANDEM_KERNELS_PEAK_H_
#define TANDEM_KERNELS_PEAK_H_

#include <cstdint>

namespace tandem {

// What a multiply-add takes in; sums are f32 and int32.
enum class DotInput { kF32, kBF16, kInt8 };
inline constexpr DotInput kAllDotInputs[] = {DotInput::kF32, DotInput::kBF16, DotInput::kInt8};
inline constexpr const char* NameOf(DotInput input) {
  return input == DotInput::kF32 ? "f32" : input == DotInput::kBF16 ? "bf16" : "int8";
}

// Runs `steps` steps of independent multiply-adds on values in registers, on this thread, by the
// widest instruction that the machine has for such input. Returns how many multiply-adds that were;
// 0, and nothing is done, if there is no such instruction. REQUIRES: steps >= 1.
int64_t RunMultiplyAdds(DotInput input, int64_t steps);

}  // namespace tandem

#endif  // TANDEM_KERNELS_PEAK_H_
