// The constants of exp, which has the same bits on the CPU and on devices. With x = n ln 2 + r,
// integer n and |r| <= ln 2 / 2, exp(x) = 2^n exp(r) and exp(r) - 1 = r + r^2 P(r). P is the Taylor
// polynomial up to the term r^7 / 7!, whose error is less than 6e-9.
#ifndef TANDEM_KERNELS_EXPONENTIAL_SERIES_H_
#define TANDEM_KERNELS_EXPONENTIAL_SERIES_H_

namespace tandem {

// 1.5 * 2^23. Neighbouring f32 values differ by 1 there, so adding it rounds to an integer.
inline constexpr float kIntegerRounder = 12582912.0f;
inline constexpr float kLog2OfE = 1.44269504f;
// -ln 2 in two parts. The first has 15 bits, so that n times it is exact.
inline constexpr float kMinusLn2High = -0.693145751953125f;
inline constexpr float kMinusLn2Low = -1.42860682e-6f;
// The coefficients of P, from r^5 down to r^0.
inline constexpr float kExpTerm7 = 1.0f / 5040.0f;
inline constexpr float kExpTerm6 = 1.0f / 720.0f;
inline constexpr float kExpTerm5 = 1.0f / 120.0f;
inline constexpr float kExpTerm4 = 1.0f / 24.0f;
inline constexpr float kExpTerm3 = 1.0f / 6.0f;
inline constexpr float kExpTerm2 = 0.5f;
// The range to which x is clamped. exp is 0 below kExpLowest, and infinity from 88.73 on.
inline constexpr float kExpLowest = -104.0f;
inline constexpr float kExpHighest = 89.0f;

}  // namespace tandem

#endif  // TANDEM_KERNELS_EXPONENTIAL_SERIES_H_
