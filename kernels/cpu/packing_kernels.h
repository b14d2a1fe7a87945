// Packing of weights (packing.h); include after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_PACKING_KERNELS_H_
#define TANDEM_KERNELS_CPU_PACKING_KERNELS_H_

#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

// How far ahead of itself packing fetches the rows of weights: 64 rows a page apart are more
// streams than hardware follows.
inline constexpr int kPackFetchBytes = 512;

inline void TransposeOutputsOf(const std::byte* const* outputs, int words, std::byte* out) {
  constexpr int kLineWords = 16;  // of a cache line
  const float* rows[kPanelOutputs];
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    rows[lane] = reinterpret_cast<const float*>(outputs[lane]);  // words, whatever they hold
  }
  int word = 0;
  for (; word + kLineWords <= words; word += kLineWords) {
    float* const steps = reinterpret_cast<float*>(out + static_cast<size_t>(word) * kStepBytes);
    for (int lane = 0; lane < kPanelOutputs; lane += 16) {
      for (int i = 0; i < 16; ++i) {
        FetchFar(outputs[lane + i] + word * sizeof(float) + kPackFetchBytes);
      }
      Transpose(rows + lane, word, kLineWords, steps + lane, kPanelOutputs);
    }
  }
  for (; word < words; ++word) {
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(out + static_cast<size_t>(word) * kStepBytes + lane * sizeof(float),
                  outputs[lane] + word * sizeof(float), sizeof(float));
    }
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PACKING_KERNELS_H_
