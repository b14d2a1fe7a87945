// The peak arithmetic throughput of this machine's CPU, with which benchmarks compare products.
#ifndef TANDEM_KERNELS_PEAK_H_
#define TANDEM_KERNELS_PEAK_H_

#include <cstdint>

namespace tandem {

// The input type of a multiply-add. Sums are f32, or int32 for int8.
enum class DotInput { kF32, kBF16, kInt8 };
inline constexpr DotInput kAllDotInputs[] = {DotInput::kF32, DotInput::kBF16, DotInput::kInt8};
inline constexpr const char* NameOf(DotInput input) {
  return input == DotInput::kF32 ? "f32" : input == DotInput::kBF16 ? "bf16" : "int8";
}

// Runs `steps` steps of independent multiply-adds on values in registers, on this thread, with the
// widest instruction that the machine has for this input type. Returns the number of multiply-adds.
// Does nothing and returns 0 if there is no such instruction. REQUIRES: steps >= 1.
int64_t RunMultiplyAdds(DotInput input, int64_t steps);

}  // namespace tandem

#endif  // TANDEM_KERNELS_PEAK_H_
