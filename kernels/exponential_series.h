// The numbers of exp on the CPU and on devices, whose results have the same bits: x = n ln 2 + r
// with integer n and |r| <= ln 2 / 2, and exp(r) - 1 = r + r^2 P(r), of which Taylor's P to r^7 /
// 7! leaves out less than 6e-9.
#ifndef TANDEM_KERNELS_EXPONENTIAL_SERIES_H_
#define TANDEM_KERNELS_EXPONENTIAL_SERIES_H_

namespace tandem {

// Integers are the spacing of f32 at 1.5 * 2^23: adding it rounds.
inline constexpr float kIntegerRounder = 12582912.0f;
inline constexpr float kLog2OfE = 1.44269504f;
// -ln 2 in two parts, the first of 15 bits, so that n times it is exact.
inline constexpr float kMinusLn2High = -0.693145751953125f;
inline constexpr float kMinusLn2Low = -1.42860682e-6f;
// P's coefficients, of r^5 first.
inline constexpr float kExpTerm7 = 1.0f / 5040.0f;
inline constexpr float kExpTerm6 = 1.0f / 720.0f;
inline constexpr float kExpTerm5 = 1.0f / 120.0f;
inline constexpr float kExpTerm4 = 1.0f / 24.0f;
inline constexpr float kExpTerm3 = 1.0f / 6.0f;
inline constexpr float kExpTerm2 = 0.5f;
// exp is 0 below the first, and infinity from 88.73 on.
inline constexpr float kExpLowest = -104.0f;
inline constexpr float kExpHighest = 89.0f;

}  // namespace tandem

#endif  // TANDEM_KERNELS_EXPONENTIAL_SERIES_H_
