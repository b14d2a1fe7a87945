#include "base/philox.h"

#include "base/philox_rounds.h"

namespace tandem {
namespace {

// The stream that derives the keys of sequences; differs from every RandomStream.
constexpr uint32_t kSequenceKeyStream = 0xFF;

}  // namespace

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter, uint64_t key) {
  return PhiloxBlock(counter, key);
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

double RandomSource::UniformDouble(const RandomPlace& place) const {
  const std::array<uint32_t, 4> words = Block(place, 0);
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

float RandomSource::ToUniform(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

float RandomSource::ToExponential(uint32_t bits) { return PhiloxExponential(bits); }

}  // namespace tandem
