// exp and tanh of 16 lanes. Include it after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_EXPONENTIAL_H_
#define TANDEM_KERNELS_CPU_EXPONENTIAL_H_

#include "kernels/exponential_series.h"

namespace tandem {
namespace {

// The parts of exp(x) for x = n ln 2 + r (kernels/exponential_series.h).
struct ReducedExponential {
  Floats n;
  Floats less_one;  // exp(r) - 1
};
inline ReducedExponential ReduceExponential(Floats x) {
  const Floats rounder = Splat(kIntegerRounder);
  const Floats n = Sub(MulAdd(x, Splat(kLog2OfE), rounder), rounder);
  Floats r = MulAdd(n, Splat(kMinusLn2High), x);
  r = MulAdd(n, Splat(kMinusLn2Low), r);
  Floats p = Splat(kExpTerm7);
  p = MulAdd(p, r, Splat(kExpTerm6));
  p = MulAdd(p, r, Splat(kExpTerm5));
  p = MulAdd(p, r, Splat(kExpTerm4));
  p = MulAdd(p, r, Splat(kExpTerm3));
  p = MulAdd(p, r, Splat(kExpTerm2));
  return {n, MulAdd(Mul(r, r), p, r)};
}

// exp(x), accurate to 2 units in the last place: 0 below -104, infinity above 88.73, NaN only for
// NaN.
//
// Multiplies by 2^n in two factors, so that a result may be subnormal or overflow, and is rounded
// only once.
inline Floats Exp(Floats x) {
  const ReducedExponential e =
      ReduceExponential(Min(Splat(kExpHighest), Max(Splat(kExpLowest), x)));
  return TimesPowerOfTwo(Add(Splat(1.0f), e.less_one), e.n);
}

// exp(x) of scores for x <= 80, accurate to 2 units in the last place. Smaller x count as -86, so
// that 2^n is never subnormal. NaN only for NaN.
//
// As above, but exp(r) = 1 + r + r^2 P(r), with a P of degree 4 through the Chebyshev points and an
// error of at most 1.1e-8. The multiplication by 2^n is part of the last rounding.
inline Floats ExpOfScore(Floats x) {
  x = Max(Splat(-86.0f), x);
  // Rounds as above, and leaves n plus the exponents' bias (127) in the low bits.
  const Floats rounder = Splat(kIntegerRounder + 127.0f);
  const Floats rounded = MulAdd(x, Splat(kLog2OfE), rounder);
  const Floats n = Sub(rounded, rounder);
  Floats r = MulAdd(n, Splat(kMinusLn2High), x);
  r = MulAdd(n, Splat(kMinusLn2Low), r);
  Floats p = MulAdd(Splat(0.00139262504f), r, Splat(0.00836323295f));
  p = MulAdd(p, r, Splat(0.0416665524f));
  p = MulAdd(p, r, Splat(0.166665763f));
  p = MulAdd(p, r, Splat(0.5f));
  const Floats power = LowBitsAsExponent(rounded);
  return MulAdd(MulAdd(Mul(r, r), p, r), power, power);
}

// tanh(x), accurate to 3 units in the last place; NaN only for NaN.
//
// tanh(x) = m / (m + 2) with m = exp(2 x) - 1 = 2^n (exp(r) - 1) + (2^n - 1). Near 0, n is 0 and
// the second term vanishes, so nothing cancels.
inline Floats Tanh(Floats x) {
  x = Min(Splat(10.0f), Max(Splat(-10.0f), x));
  const ReducedExponential e = ReduceExponential(Add(x, x));
  const Floats power = TimesPowerOfTwo(Splat(1.0f), e.n);
  const Floats m = MulAdd(e.less_one, power, Sub(power, Splat(1.0f)));
  return Div(m, Add(m, Splat(2.0f)));
}

// cap * tanh(x / cap).
inline Floats SoftCapped(Floats x, float cap) { return Mul(Splat(cap), Tanh(Div(x, Splat(cap)))); }

inline void ExponentialOf(const float* x, int size, float* out) {
  for (int i = 0; i < size; i += kLanes) {
    const int count = size - i < kLanes ? size - i : kLanes;
    StorePart(out + i, Exp(LoadPart(x + i, count)), count);
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_EXPONENTIAL_H_
