#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem {
namespace {

// The reference: a 16-bit format by its definition, with sign, exponent and mantissa in double
// arithmetic.
struct Format {
  int mantissa_bits;
  int bias;

  int exponent_bits() const { return 15 - mantissa_bits; }
  uint32_t max_exponent() const { return (1u << exponent_bits()) - 1; }

  double ValueOf(uint16_t bits) const {
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    const uint32_t exponent = bits >> mantissa_bits & max_exponent();
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == max_exponent()) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp(mantissa + (1u << mantissa_bits),
                             static_cast<int>(exponent) - bias - mantissa_bits);
  }
};
constexpr Format kBf16{.mantissa_bits = 7, .bias = 127};
constexpr Format kF16{.mantissa_bits = 10, .bias = 15};

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

template <typename ToFloat, typename FromFloat>
void ExpectEveryValueSurvives(const Format& format, ToFloat to_float, FromFloat from_float) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const double value = format.ValueOf(bits);
    const float converted = to_float(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(converted)) << i;
      EXPECT_TRUE(std::isnan(to_float(from_float(converted)))) << i;
      continue;
    }
    EXPECT_TRUE(SameBits(converted, static_cast<float>(value))) << i;
    EXPECT_EQ(from_float(converted), bits) << i;
  }
}

TEST(Float16, EveryBf16Survives) { ExpectEveryValueSurvives(kBf16, Bf16ToFloat, FloatToBf16); }
TEST(Float16, EveryF16Survives) { ExpectEveryValueSurvives(kF16, F16ToFloat, FloatToF16); }

// Between every two neighbours, the float just below the midpoint rounds down, the midpoint to the
// even neighbour, and the float just above it up. Midpoints are floats, because they need only one
// bit more than the format. The largest finite value's neighbour is the value that would follow it
// in the format, which counts as infinity.
template <typename FromFloat>
void ExpectRoundingToNearestEven(const Format& format, FromFloat from_float) {
  const uint16_t infinity = static_cast<uint16_t>(format.max_exponent() << format.mantissa_bits);
  for (uint16_t low = 0; low < infinity; ++low) {
    const uint16_t high = low + 1;
    const double step = high < infinity ? format.ValueOf(high) - format.ValueOf(low)
                                        : format.ValueOf(low) - format.ValueOf(low - 1);
    const double exact = format.ValueOf(low) + step / 2;
    const float middle = static_cast<float>(exact);
    if (middle != exact) {  // the midpoint is not a float
      ADD_FAILURE() << low;
      continue;
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (const uint16_t sign : {0, 0x8000}) {
      const float s = sign ? -1.0f : 1.0f;
      EXPECT_EQ(from_float(s * std::nextafter(middle, 0.0f)), sign | low) << low;
      EXPECT_EQ(from_float(s * middle), sign | (low % 2 == 0 ? low : high)) << low;
      EXPECT_EQ(from_float(s * std::nextafter(middle, inf)), sign | high) << low;
    }
  }
}

TEST(Float16, Bf16RoundsToNearestEven) { ExpectRoundingToNearestEven(kBf16, FloatToBf16); }
TEST(Float16, F16RoundsToNearestEven) { ExpectRoundingToNearestEven(kF16, FloatToF16); }

TEST(Float16, ConvertsExtremeValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float max = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(FloatToBf16(inf), 0x7F80);
  EXPECT_EQ(FloatToBf16(-inf), 0xFF80);
  EXPECT_EQ(FloatToBf16(max), 0x7F80);
  EXPECT_EQ(FloatToBf16(least), 0);
  EXPECT_EQ(FloatToBf16(-least), 0x8000);
  EXPECT_EQ(FloatToF16(inf), 0x7C00);
  EXPECT_EQ(FloatToF16(-max), 0xFC00);
  EXPECT_EQ(FloatToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65519.99f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToF16(least), 0);
  EXPECT_EQ(FloatToF16(-0x1p-25f), 0x8000);  // half of the smallest value: rounds to even
  EXPECT_EQ(FloatToF16(0x1.000002p-25f), 1);
  for (const uint32_t payload : {1u, 0x1FFFu, 0x7FFFFFu, 0x400000u}) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7F800000u | payload);
      EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(nan)))) << payload;
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(nan)))) << payload;
    }
  }
}

}  // namespace
}  // namespace tandem
