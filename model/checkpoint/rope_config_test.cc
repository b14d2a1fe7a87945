// Compares frequencies with the formulas in double.
#include "model/checkpoint/rope_config.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// At most eight operations in f32, each within 2^-24 of its result. Their factors cancel only in (1
// - smooth), whose error is below 2^-24 / low of the sum: 16 * 2^-24 in all.
constexpr double kFrequencyTolerance = 16 * 0x1p-24;

TEST(RopeConfig, DefaultAndLinearFrequencies) {
  for (const double theta : {10000.0, 500000.0, 1e6}) {
    for (const int head_dim : {2, 8, 64, 128}) {
      RopeConfig rope{.theta = theta};
      const std::vector<float> plain = rope.InverseFrequencies(head_dim);
      rope.type = RopeConfig::Type::kLinear;
      rope.factor = 2.5;
      const std::vector<float> linear = rope.InverseFrequencies(head_dim);
      ASSERT_EQ(plain.size(), static_cast<size_t>(head_dim / 2));
      for (int i = 0; i < head_dim / 2; ++i) {
        // The exponent is rounded to f32 before the power: log(theta) * 2^-24 more.
        const double expected = std::pow(theta, -2.0 * i / head_dim);
        const double tolerance = (kFrequencyTolerance + std::log(theta) * 0x1p-24) * expected;
        EXPECT_NEAR(plain[i], expected, tolerance);
        EXPECT_NEAR(linear[i], expected / 2.5, tolerance);
      }
      EXPECT_EQ(plain[0], 1.0f);
    }
  }
}

TEST(RopeConfig, Llama3StretchesLongWavesOnly) {
  const RopeConfig rope{.type = RopeConfig::Type::kLlama3,
                        .theta = 500000.0,
                        .factor = 8.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_context = 8192};
  const std::vector<float> frequencies = rope.InverseFrequencies(128);
  int num_kept = 0, num_blended = 0, num_stretched = 0;
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -i / 64.0);
    const double turns = 8192 * plain / (2 * M_PI);  // in the original context
    double expected = plain;
    if (turns < 1.0) {
      expected = plain / 8;
      ++num_stretched;
    } else if (turns > 4.0) {
      ++num_kept;
    } else {
      const double smooth = (turns - 1.0) / (4.0 - 1.0);
      expected = (1 - smooth) * plain / 8 + smooth * plain;
      ++num_blended;
    }
    EXPECT_NEAR(frequencies[i], expected,
                (kFrequencyTolerance + 4 * std::log(500000.0) * 0x1p-24) * expected)
        << i;
  }
  EXPECT_GT(num_kept, 10);
  EXPECT_GT(num_blended, 3);
  EXPECT_GT(num_stretched, 10);
}

// Pairs that turn more than 32 times in the original context keep their frequency, pairs that turn
// less than once are stretched, and pairs between are blended linearly by their number.
TEST(RopeConfig, YarnBlendsByThePairsNumber) {
  RopeConfig rope{
      .type = RopeConfig::Type::kYarn, .theta = 1e6, .factor = 4.0, .original_context = 32768};
  constexpr int kDim = 128;
  const auto pair_that_turns = [&](double times) {
    return kDim * std::log(32768 / (times * 2 * M_PI)) / (2 * std::log(1e6));
  };
  for (const bool rounds : {true, false}) {
    rope.rounds_range = rounds;
    const double first = rounds ? std::floor(pair_that_turns(32)) : pair_that_turns(32);
    const double last = rounds ? std::ceil(pair_that_turns(1)) : pair_that_turns(1);
    const std::vector<float> frequencies = rope.InverseFrequencies(kDim);
    int num_kept = 0, num_blended = 0, num_stretched = 0;
    for (int i = 0; i < kDim / 2; ++i) {
      const double plain = std::pow(1e6, -2.0 * i / kDim);
      const double stretched = std::min(std::max((i - first) / (last - first), 0.0), 1.0);
      const double expected = plain / 4 * stretched + plain * (1 - stretched);
      ++(stretched == 0 ? num_kept : stretched == 1 ? num_stretched : num_blended);
      // The share has three roundings of numbers up to `last`; its error changes the result by at
      // most three quarters of it.
      EXPECT_NEAR(frequencies[i], expected,
                  (kFrequencyTolerance + (std::log(1e6) + 3 * last) * 0x1p-24) * expected)
          << i;
    }
    EXPECT_GT(num_kept, 10);
    EXPECT_GT(num_blended, 3);
    EXPECT_GT(num_stretched, 10);
  }
}

TEST(RopeConfig, LongRopeUsesTheDivisorsForTheLengthOfTheText) {
  const RopeConfig rope{.type = RopeConfig::Type::kLongRope,
                        .short_divisors = {1.0f, 1.5f, 2.0f},
                        .long_divisors = {4.0f, 8.0f, 16.0f}};
  const std::vector<float> of_short = rope.InverseFrequencies(6);
  const std::vector<float> of_long = rope.InverseFrequencies(6, true);
  for (int i = 0; i < 3; ++i) {
    const double plain = std::pow(10000.0, -2.0 * i / 6);
    const double tolerance = (kFrequencyTolerance + std::log(10000.0) * 0x1p-24) * plain;
    EXPECT_NEAR(of_short[i], plain / rope.short_divisors[i], tolerance);
    EXPECT_NEAR(of_long[i], plain / rope.long_divisors[i], tolerance);
  }
}

}  // namespace
}  // namespace tandem
