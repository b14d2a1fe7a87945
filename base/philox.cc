#include "base/philox.h"

#include <bit>

#include "base/philox_rounds.h"

namespace tandem {
namespace {

// Counter lanes of a sequence's key, outside every stream.
constexpr uint32_t kSequenceKeyStream = 0xFF;

// Natural logarithm of a positive normal double, by a fixed sequence of operations without fused
// multiply-adds, so that noise has the same bits on every machine. With m in [sqrt(1/2), sqrt(2))
// and s = (m - 1) / (m + 1), |s| < 0.172, the first dropped term 2 s^17 / 17 is below 2e-14.
double FixedLog(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
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

}  // namespace

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, uint64_t key) {
  std::array<uint32_t, 4> c = counter;
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

RandomSource RandomSource::ForSequence(uint32_t index) const {
  if (index == 0) return *this;
  const auto words = Philox4x32({index, kSequenceKeyStream, 0, 0}, seed_);
  return RandomSource(words[0] | uint64_t{words[1]} << 32);
}

std::array<uint32_t, 4> RandomSource::FirstCounter(const RandomPlace& place) {
  return {place.position, static_cast<uint32_t>(place.stream) | place.slot << 8, 0, place.retry};
}

std::array<uint32_t, 4> RandomSource::Block(const RandomPlace& place, uint32_t lane) const {
  return Philox4x32(
      {place.position, static_cast<uint32_t>(place.stream) | place.slot << 8, lane, place.retry},
      seed_);
}

float RandomSource::ToUniform(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

float RandomSource::ToExponential(uint32_t bits) {
  // 1 - u is off by at most 2^-54 in double, which is 2^-21 of the smallest u; below 2^-20 the
  // series u + u^2 / 2 is exact to f32.
  // The scaling is exact, so the sum rounds once, as a fused multiply-add would.
  float rounded = static_cast<float>(bits) * 0x1p-32f + 0x1p-33f;
  if (rounded > 1.0f - 0x1p-24f) rounded = 1.0f - 0x1p-24f;
  const double u = rounded;
  return static_cast<float>(u < 0x1p-20 ? u + 0.5 * u * u : -FixedLog(1.0 - u));
}

}  // namespace tandem
