#include "tests/simt/tensor_core_arithmetic.h"

#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::simt {
namespace {

constexpr TensorCore kCores[] = {kAmpere, kHopper};

// An instruction's factors, 0 by default, and the sum's start.
struct Factors {
  float a[kTensorDepth] = {};
  float b[kTensorDepth] = {};
  float start = 0.0f;

  Factors& Set(int k, float left, float right) {
    a[k] = left;
    b[k] = right;
    return *this;
  }
};

float Result(const TensorCore& core, const Factors& factors) {
  TensorNumber a[kTensorDepth], b[kTensorDepth];
  for (int k = 0; k < kTensorDepth; ++k) {
    a[k] = TensorNumber::Of(factors.a[k]);
    b[k] = TensorNumber::Of(factors.b[k]);
  }
  return MultiplyAndAdd(core, a, b, factors.start);
}

int ExponentOf(double x) { return x == 0.0 ? -126 : std::max(std::ilogb(x), -126); }

// The definition in double, where every step is exact: a product has 16 bits and is at least
// 2^-266, dividing by a power of two keeps its bits, and 17 integers below 2^28 add up to less than
// 2^53.
float PlainSum(const float* a, const float* b, int count, float start, int fraction_bits) {
  int largest = ExponentOf(start);
  double direct = start;
  for (int k = 0; k < count; ++k) {
    direct += double{a[k]} * b[k];
    if (std::isfinite(a[k]) && std::isfinite(b[k])) {
      largest = std::max(largest, ExponentOf(a[k]) + ExponentOf(b[k]));
    }
  }
  if (std::isnan(direct)) return std::bit_cast<float>(0x7FFFFFFF);
  if (std::isinf(direct)) return static_cast<float>(direct);
  const double unit = std::ldexp(1.0, largest - fraction_bits);
  double sum = std::trunc(start / unit);
  for (int k = 0; k < count; ++k) sum += std::trunc(double{a[k]} * b[k] / unit);
  sum = sum * unit + 0.0;
  const auto nearest = static_cast<float>(sum);
  if (std::abs(sum) >= 0x1p128) return nearest;  // infinite
  return std::abs(double{nearest}) > std::abs(sum) ? std::nextafterf(nearest, 0.0f) : nearest;
}

float Plain(const TensorCore& core, const Factors& factors) {
  float sum = factors.start;
  for (int k = 0; k < kTensorDepth; k += core.num_products) {
    sum = PlainSum(factors.a + k, factors.b + k, core.num_products, sum, core.fraction_bits);
  }
  return sum;
}

float AnyBf16(std::mt19937& random) { return std::bit_cast<float>(uint32_t(random() << 16)); }
// Numbers within 2^spread of each other, so that terms overlap, and a few zeros.
float NearOne(std::mt19937& random, int spread, uint32_t kept_bits) {
  if (random() % 16 == 0) return random() % 2 == 0 ? 0.0f : -0.0f;
  const float significand =
      std::bit_cast<float>((uint32_t(random()) & kept_bits & 0x807FFFFF) | 0x3F800000);
  return std::ldexp(significand, static_cast<int>(random() % (2 * spread + 1)) - spread);
}

TEST(TensorCoreArithmetic, EqualsThePlainDefinitionOnRandomBits) {
  std::mt19937 random(1);
  int num_different = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    Factors factors;
    const int spread = trial % 3 == 0 ? 0 : trial % 3 == 1 ? 6 : 60;
    for (int k = 0; k < kTensorDepth; ++k) {
      factors.a[k] = spread == 0 ? AnyBf16(random) : NearOne(random, spread, 0xFFFF0000);
      factors.b[k] = spread == 0 ? AnyBf16(random) : NearOne(random, spread, 0xFFFF0000);
    }
    factors.start = spread == 0 ? std::bit_cast<float>(uint32_t(random()))
                                : NearOne(random, 2 * spread, 0xFFFFFFFF);
    float results[2];
    for (int i = 0; i < 2; ++i) {
      results[i] = Result(kCores[i], factors);
      ASSERT_EQ(std::bit_cast<uint32_t>(results[i]),
                std::bit_cast<uint32_t>(Plain(kCores[i], factors)))
          << trial << " " << results[i];
    }
    num_different += results[0] != results[1];
  }
  EXPECT_GT(num_different, 10000);  // the two kinds of cores differ
}

TEST(TensorCoreArithmetic, TruncatesTermsAfterItsFractionBits) {
  for (const auto& [exponent, ampere, hopper] : {std::tuple{-24, 1 + 0x1p-20f, 1 + 0x1p-20f},
                                                 {-25, 1.0f, 1 + 0x1p-21f},
                                                 {-26, 1.0f, 1.0f}}) {
    Factors factors;
    factors.start = 1.0f;
    for (int k = 0; k < kTensorDepth; ++k) factors.Set(k, std::ldexp(1.0f, exponent), 1.0f);
    EXPECT_EQ(Result(kAmpere, factors), ampere) << exponent;
    EXPECT_EQ(Result(kHopper, factors), hopper) << exponent;
  }
}

TEST(TensorCoreArithmetic, TruncatesSumsTowardZero) {
  for (const float sign : {1.0f, -1.0f}) {
    Factors factors;
    factors.start = sign;
    factors.Set(0, sign * 3, 0x1p-25f);  // three quarters of the last place
    EXPECT_EQ(Result(kHopper, factors), sign);
    factors.Set(1, -sign * 1, 0x1p-1f);  // half of the sum is left, with one more bit
    EXPECT_EQ(Result(kHopper, factors), sign * (0.5f + 0x1p-24f));
  }
}

// 1.5 * 1.5 = 2.25 has exponent 0, so a term of 2^-25 is kept.
TEST(TensorCoreArithmetic, DoesNotNormaliseProducts) {
  Factors factors;
  factors.Set(0, 1.5f, 1.5f).Set(1, -1.5f, 1.5f).Set(2, 0x1p-25f, 1.0f);
  EXPECT_EQ(Result(kHopper, factors), 0x1p-25f);
  factors.Set(3, 2.0f, 1.0f).Set(4, -2.0f, 1.0f);
  EXPECT_EQ(Result(kHopper, factors), 0.0f);
}

TEST(TensorCoreArithmetic, AddsBothHalvesInSequenceOnAmpere) {
  Factors factors;
  factors.Set(0, 0x1p30f, 1.0f).Set(1, -0x1p30f, 1.0f).Set(8, 1.0f, 1.0f);
  EXPECT_EQ(Result(kAmpere, factors), 1.0f);
  EXPECT_EQ(Result(kHopper, factors), 0.0f);
}

// Attention must avoid this.
TEST(TensorCoreArithmetic, TruncatesTermsNextToZeroTimesAHugeNumber) {
  Factors factors;
  factors.Set(0, 0x1p-30f, 1.0f);
  for (const TensorCore& core : kCores) {
    EXPECT_EQ(Result(core, factors), 0x1p-30f);
    factors.Set(1, 0.0f, 1.5f);
    EXPECT_EQ(Result(core, factors), 0x1p-30f);
    factors.Set(1, 0.0f, 0x1p127f);
    EXPECT_EQ(Result(core, factors), 0.0f);
    factors.Set(1, 0.0f, 0.0f);
  }
}

TEST(TensorCoreArithmetic, HandlesInfinitiesNanSubnormalNumbersAndZero) {
  for (const TensorCore& core : kCores) {
    EXPECT_EQ(Result(core, Factors().Set(3, HUGE_VALF, -2.0f)), -HUGE_VALF);
    EXPECT_EQ(Result(core, Factors().Set(3, 0x1p127f, 2.0f)), HUGE_VALF);
    const Factors nan[] = {Factors().Set(0, HUGE_VALF, 0.0f), Factors().Set(0, NAN, 0.0f),
                           Factors().Set(0, HUGE_VALF, 1.0f).Set(9, HUGE_VALF, -1.0f)};
    for (const Factors& factors : nan) {
      EXPECT_EQ(std::bit_cast<uint32_t>(Result(core, factors)), 0x7FFFFFFFu);
    }
    // Products beyond f32 are finite until the sum is rounded.
    EXPECT_EQ(Result(core, Factors().Set(0, 0x1p127f, 2.0f).Set(1, -0x1p127f, 1.0f)), 0x1p127f);
    EXPECT_EQ(Result(core, Factors().Set(0, 0x1p-133f, 1.0f)), 0x1p-133f);
    EXPECT_EQ(Result(core, Factors().Set(0, 0x1p-100f, 0x1p-49f)), 0x1p-149f);
    EXPECT_EQ(Result(core, Factors().Set(0, 0x1p-100f, 0x1p-50f)), 0.0f);
    Factors zero;
    zero.start = -0.0f;
    EXPECT_FALSE(std::signbit(Result(core, zero.Set(0, -0.0f, 1.0f))));
  }
}

}  // namespace
}  // namespace tandem::simt
