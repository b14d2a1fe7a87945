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

inline float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint32_t WordOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// The f32 bits of `count` weights; zeros follow.
inline void WidenGroup(const std::byte* weights, GroupSource source, int count, uint32_t* bits) {
  if (source == GroupSource::kF32) {
    std::memcpy(bits, weights, count * sizeof(uint32_t));
  } else {
    uint16_t halves[kGroupInputs] = {};
    std::memcpy(halves, weights, count * sizeof(uint16_t));
    for (int i = 0; i < kGroupInputs; ++i) bits[i] = uint32_t{halves[i]} << 16;
  }
  for (int i = count; i < kGroupInputs; ++i) bits[i] = 0;
}

// QuantizeGroup of quantize.h in loops that a compiler makes vectors of: magnitudes are compared as
// the whole numbers that their bits are, and the nearest whole number is the last bits of a sum.
inline constexpr float kRoundingSum = 0x1.8p23f;
inline constexpr float kNoGroupWeight = 0x1p-100f;

inline void QuantizeGroupToInt8(const std::byte* weights, GroupSource source, int count,
                                std::byte* out, float* scale) {
  uint32_t bits[kGroupInputs];
  WidenGroup(weights, source, count, bits);
  uint32_t most = 0;
  for (int i = 0; i < kGroupInputs; ++i) {
    const uint32_t magnitude = bits[i] & 0x7FFFFFFFu;
    most = most < magnitude ? magnitude : most;
  }
  const float largest = FloatOf(most);
  const bool any = largest >= kNoGroupWeight;
  const float inverse = any ? 127.0f / largest : 0.0f;
  *scale = any ? largest / 127.0f : 0.0f;
  for (int i = 0; i < kGroupInputs; ++i) {
    out[i] = static_cast<std::byte>(WordOf(FloatOf(bits[i]) * inverse + kRoundingSum));
  }
}

inline void QuantizeGroupToInt4(const std::byte* weights, GroupSource source, int count,
                                std::byte* out, float* scale) {
  uint32_t bits[kGroupInputs];
  WidenGroup(weights, source, count, bits);
  int32_t high = 0;
  int32_t low = 0;  // of the negative ones, without the sign
  for (int i = 0; i < kGroupInputs; ++i) {
    const int32_t positive = static_cast<int32_t>(bits[i]);
    const int32_t negative = static_cast<int32_t>(bits[i] ^ 0x80000000u);
    high = high < positive ? positive : high;
    low = low < negative ? negative : low;
  }
  const float largest = high > low ? FloatOf(high) : -FloatOf(low);
  const bool any = (high > low ? FloatOf(high) : FloatOf(low)) >= kNoGroupWeight;
  const float inverse = any ? -8.0f / largest : 0.0f;
  *scale = any ? largest / -8.0f : 0.0f;
  uint8_t halves[kGroupInputs];
  const int32_t zero = static_cast<int32_t>(WordOf(kRoundingSum)) - 8;
  for (int i = 0; i < kGroupInputs; ++i) {
    const int32_t half = static_cast<int32_t>(WordOf(FloatOf(bits[i]) * inverse + kRoundingSum));
    halves[i] = static_cast<uint8_t>(half - zero < 15 ? half - zero : 15);
  }
  // Four bytes of the first four inputs' halves, and of the next four's.
  uint32_t words[kGroupInputs / 4];
  uint32_t pairs[kGroupInputs / 8];
  std::memcpy(words, halves, sizeof(words));
  for (int i = 0; i < kGroupInputs / 8; ++i) pairs[i] = words[2 * i] | words[2 * i + 1] << 4;
  std::memcpy(out, pairs, sizeof(pairs));
}

inline void QuantizeGroupOf(const std::byte* weights, GroupSource source, int count, bool to_int4,
                            std::byte* out, float* scale) {
  const int bytes = count * (source == GroupSource::kF32 ? 4 : 2);
  for (int line = 0; line < bytes; line += 64) FetchFar(weights + line + kPackFetchBytes);
  if (to_int4) {
    QuantizeGroupToInt4(weights, source, count, out, scale);
  } else {
    QuantizeGroupToInt8(weights, source, count, out, scale);
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PACKING_KERNELS_H_
