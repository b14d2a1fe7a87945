// Philox4x32-10 and the noise made from it. Scalar, SIMD and device code share these constants and
// operations, so that noise has the same bits everywhere. The compiler must not contract these
// expressions to fused multiply-adds.
#ifndef TANDEM_BASE_PHILOX_ROUNDS_H_
#define TANDEM_BASE_PHILOX_ROUNDS_H_

#include <array>
#include <cstdint>

namespace tandem {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xBB67AE85;

// Computes one block: ten rounds over a 128-bit counter with a 64-bit key.
constexpr std::array<uint32_t, 4> PhiloxBlock(std::array<uint32_t, 4> c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * c[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return c;
}

// Natural logarithm of a positive normal double. With m in [sqrt(1/2), sqrt(2)) and s = (m - 1) /
// (m + 1), |s| < 0.172, the first dropped term 2 s^17 / 17 is below 2e-14.
constexpr double FixedLog(double x) {
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 1.0 / 15.0;
  sum = sum * z + 1.0 / 13.0;
  sum = sum * z + 1.0 / 11.0;
  sum = sum * z + 1.0 / 9.0;
  sum = sum * z + 1.0 / 7.0;
  sum = sum * z + 1.0 / 5.0;
  sum = sum * z + 1.0 / 3.0;
  sum = sum * z + 1.0;
  return 2.0 * s * sum + exponent * 0.6931471805599453;
}

// Returns u = (bits + 1/2) / 2^32, rounded to f32. At most 1.
constexpr float PhiloxUniform(uint32_t bits) {
  return static_cast<float>(bits) * 0x1p-32f + 0x1p-33f;
}

// Returns standard exponential noise -log(1 - u). In double, the rounding error of 1 - u is at most
// 2^-54, which is 2^-21 of the smallest u; below 2^-20 the series u + u^2 / 2 is exact to f32.
constexpr float PhiloxExponential(uint32_t bits) {
  float rounded = PhiloxUniform(bits);
  if (rounded > 1.0f - 0x1p-24f) rounded = 1.0f - 0x1p-24f;
  const double u = rounded;
  return static_cast<float>(u < 0x1p-20 ? u + 0.5 * u * u : -FixedLog(1.0 - u));
}

}  // namespace tandem

#endif  // TANDEM_BASE_PHILOX_ROUNDS_H_
