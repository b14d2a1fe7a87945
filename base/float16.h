// bf16 and f16 as bits. Conversions round to nearest, ties to even, and keep NaN a NaN.
#ifndef TANDEM_BASE_FLOAT16_H_
#define TANDEM_BASE_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace tandem {

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);  // quiet NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float F16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t rest = bits & 0x7FFF;
  if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (rest & 0x3FF) << 13);
  if (rest < 0x400) {  // zero and subnormals: an exact product
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
}

inline uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7FFFFFFF;
  if (rest > 0x7F800000) return sign | 0x7E00;
  if (rest >= 0x47800000) return sign | 0x7C00;  // 65536 and above
  if (rest < 0x38800000) {                       // below 2^-14: adding 2^-1 rounds at 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  return static_cast<uint16_t>(sign | ((rest - (112u << 23) + 0xFFF + (rest >> 13 & 1)) >> 13));
}

}  // namespace tandem

#endif  // TANDEM_BASE_FLOAT16_H_
