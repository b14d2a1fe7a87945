#include "base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace tandem {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Philox, GivesTheKnownAnswersOfThePaper) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0), (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, ~0ull),
            (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

// The expected bits come from an independent implementation in Python of the documented layout.
TEST(RandomSource, LaysOutCountersAsDocumented) {
  const auto bits = [](uint64_t seed, const RandomPlace& place, uint64_t entry) {
    return RandomSource(seed).Block(place, static_cast<uint32_t>(entry / 4))[entry % 4];
  };
  constexpr uint64_t kSeed = 0x0123456789ABCDEF;
  EXPECT_EQ(RandomSource(kSeed).Block({RandomStream::kDraft, 3, 5, 2}, 7),
            (Block{0xEF4BD12E, 0xDF94C6EE, 0xCA707273, 0xC52AFE0A}));
  EXPECT_EQ(bits(kSeed, {RandomStream::kTarget, 0, 0}, 0), 0xB850222Eu);
  EXPECT_EQ(bits(kSeed, {RandomStream::kTarget, 17, 0}, 4095), 0xBB6FD87Fu);
  EXPECT_EQ(bits(kSeed, {RandomStream::kDraft, 1000, 3}, 128255), 0x71469502u);
  EXPECT_EQ(bits(7, {RandomStream::kAccept, 42, 8}, 0), 0xE29C5F22u);
  EXPECT_EQ(bits(7, {RandomStream::kResidual, 42, 2, 1}, 9), 0x27CC1DC2u);
  EXPECT_EQ(bits(~0ull, {RandomStream::kResidual, ~0u, 0xFFFFFF, ~0u}, 0x3FFFFFFFF), 0x98C4AF52u);
}

TEST(RandomSource, BlocksCountFromFirstCounter) {
  const RandomPlace place{RandomStream::kResidual, 42, 2, 1};
  for (const uint32_t lane : {0u, 1u, 77u, ~0u}) {
    Block counter = RandomSource::FirstCounter(place);
    counter[RandomSource::kLaneWord] = lane;
    EXPECT_EQ(Philox4x32(counter, 7), RandomSource(7).Block(place, lane));
  }
}

TEST(RandomSource, SequencesOfOneSeedHaveTheirOwnSeeds) {
  const RandomSource source(42);
  EXPECT_EQ(source.ForSequence(0).seed(), 42u);
  EXPECT_EQ(source.ForSequence(1).seed(), 0xCB222F4682FEF14Cu);
  EXPECT_EQ(source.ForSequence(2).seed(), 0x43EABE1394D28E4Bu);
  EXPECT_EQ(source.ForSequence(3).seed(), 0x17138F37E5AE9AA1u);
}

TEST(RandomSource, NoTwoPlacesShareABlock) {
  std::set<Block> seen;
  int num_places = 0;
  for (uint32_t position = 0; position < 6; ++position) {
    for (uint32_t stream = 0; stream < 4; ++stream) {
      for (uint32_t slot = 0; slot < 5; ++slot) {
        for (uint32_t retry = 0; retry < 3; ++retry) {
          for (uint32_t lane = 0; lane < 4; ++lane, ++num_places) {
            const RandomPlace place{static_cast<RandomStream>(stream), position, slot, retry};
            seen.insert(RandomSource(7).Block(place, lane));
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(seen.size()), num_places);
}

TEST(Uniform, IsExactAndNeverZeroOrOne) {
  for (uint32_t high = 0; high < 1u << 23; ++high) {
    const float u = RandomSource::ToUniform(high << 9 | 0x155);
    ASSERT_EQ(static_cast<double>(u), (high + 0.5) * 0x1p-23);
    ASSERT_TRUE(0.0f < u && u < 1.0f);
  }
  EXPECT_EQ(RandomSource::ToUniform(0), 0x1p-24f);
  EXPECT_EQ(RandomSource::ToUniform(~0u), 1.0f - 0x1p-24f);
  const RandomPlace place{RandomStream::kAccept, 42, 8};
  EXPECT_EQ(RandomSource(7).Uniform(place), RandomSource::ToUniform(0xE29C5F22));
}

// -log(1 - u) for u = (bits + 1/2) / 2^32 rounded to f32, computed in double by the C library.
double ReferenceExponential(uint32_t bits) {
  const float u = std::fma(static_cast<float>(bits), 0x1p-32f, 0x1p-33f);
  return -std::log1p(-std::fmin(static_cast<double>(u), 1.0 - 0x1p-24));
}

std::vector<uint32_t> ManyBits() {
  std::vector<uint32_t> many;
  for (int shift = 0; shift < 32; ++shift) {  // every power of two and the numbers near it
    for (int64_t offset = -600; offset <= 600; ++offset) {
      const int64_t bits = (int64_t{1} << shift) + offset;
      if (bits >= 0) many.push_back(static_cast<uint32_t>(bits));
    }
  }
  for (uint32_t offset = 0; offset < 5000; ++offset) many.push_back(~0u - offset);
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) many.push_back(static_cast<uint32_t>(random()));
  return many;
}

// The tolerance is half a unit in the last place of f32, at most 2^-24 relative, plus the errors in
// double: 1 - u is exact from u = 2^-20 on; below that the series drops u^3 / 3, 2^-41 relative;
// and the polynomial of the logarithm has a relative error of s^16 / 17 < 4e-14.
TEST(Exponential, IsTheRoundedLogarithm) {
  constexpr double kTolerance = 0x1p-24 + 0x1p-33;
  for (const uint32_t bits : ManyBits()) {
    const double expected = ReferenceExponential(bits);
    ASSERT_LE(std::abs(RandomSource::ToExponential(bits) - expected), kTolerance * expected)
        << bits;
  }
}

// The expected bits come from Python: noise must be the same on every machine.
TEST(Exponential, HasTheSameBitsEverywhere) {
  constexpr uint32_t kKnown[][2] = {
      {0x00000000, 0x2F000000}, {0x00000001, 0x2FC00000}, {0x00000002, 0x30200000},
      {0x00000FFF, 0x357FF808}, {0x00001000, 0x35800404}, {0x00001001, 0x35800C04},
      {0x12345678, 0x3D9712B5}, {0x80000000, 0x3F317218}, {0xDEADBEEF, 0x40027EA8},
      {0xFFFFFE00, 0x417F1402}, {0xFFFFFF7F, 0x41851592}, {0xFFFFFF80, 0x41851592},
      {0xFFFFFFFF, 0x41851592}};
  for (const auto& [bits, expected] : kKnown) {
    EXPECT_EQ(std::bit_cast<uint32_t>(RandomSource::ToExponential(bits)), expected) << bits;
  }
}

TEST(Exponential, IsFiniteAndGrowsWithItsBits) {
  std::vector<uint32_t> many = ManyBits();
  std::sort(many.begin(), many.end());
  float last = 0.0f;
  for (const uint32_t bits : many) {
    const float e = RandomSource::ToExponential(bits);
    ASSERT_GE(e, last) << bits;
    ASSERT_GT(e, 0.0f);
    last = e;
  }
  EXPECT_TRUE(std::isfinite(last));
  EXPECT_EQ(RandomSource::ToExponential(0), 0x1p-33f);
  EXPECT_TRUE(std::isfinite(std::log(RandomSource::ToExponential(0))));
}

// P(E < 1e-8) must be 1e-8: tokens that are this rare must be drawn too, which needs all 32 bits
// near 0.
TEST(Exponential, KeepsTheTailOfRareTokens) {
  uint32_t below = 0;
  while (RandomSource::ToExponential(below) < 1e-8f) ++below;
  EXPECT_NEAR(below * 0x1p-32, 1e-8, 2e-10);
}

// Mean and variance are 1 within five standard errors of n draws: 5 / sqrt(n) for the mean; for the
// variance 5 * sqrt(8 / n), because the fourth central moment of the exponential distribution is 9.
TEST(Exponential, HasMeanAndVarianceOne) {
  constexpr int kLanes = 50'000;
  const RandomSource source(99);
  double sum = 0.0, squares = 0.0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (const uint32_t bits : source.Block({RandomStream::kTarget, 5}, lane)) {
      const double e = RandomSource::ToExponential(bits);
      sum += e;
      squares += (e - 1.0) * (e - 1.0);
    }
  }
  const double n = 4.0 * kLanes;
  EXPECT_NEAR(sum / n, 1.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0, 5.0 * std::sqrt(8.0 / n));
}

}  // namespace
}  // namespace tandem
