#include "checkpoint/rope_config.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem {
namespace {

// Long waves are stretched by the factor, short ones kept, those between blended.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const float scale = static_cast<float>(rope.factor);
  const float low_wavelength = static_cast<float>(rope.original_context / rope.low_freq_factor);
  const float high_wavelength = static_cast<float>(rope.original_context / rope.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * M_PI) / frequency;
  if (wavelength > low_wavelength) return frequency / scale;
  if (wavelength < high_wavelength) return frequency;
  const float smooth = (static_cast<float>(rope.original_context) / wavelength -
                        static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0f - smooth) * frequency / scale + smooth * frequency;
}

// Pairs up to the first end of this range keep their frequency, those from its second on are
// stretched by the factor, those between blended. The ends turn beta_fast and beta_slow times in
// the original context.
struct YarnRange {
  YarnRange(const RopeConfig& rope, int rotary_dim) {
    const auto pair_that_turns = [&](double times) {
      return rotary_dim * std::log(rope.original_context / (times * 2 * M_PI)) /
             (2 * std::log(rope.theta));
    };
    begin = pair_that_turns(rope.beta_fast);
    end = pair_that_turns(rope.beta_slow);
    if (rope.rounds_range) {
      begin = std::floor(begin);
      end = std::ceil(end);
    }
    begin = std::max(begin, 0.0);
    end = std::min(end, rotary_dim - 1.0);
    if (begin == end) end += 0.001;  // as the reference does
  }
  // 1 where a pair keeps its frequency, 0 where it is stretched.
  float Kept(int pair) const {
    const float ramp =
        (static_cast<float>(pair) - static_cast<float>(begin)) / static_cast<float>(end - begin);
    return 1.0f - std::clamp(ramp, 0.0f, 1.0f);
  }
  double begin, end;
};

}  // namespace

std::vector<float> RopeConfig::InverseFrequencies(int rotary_dim, bool is_long) const {
  // In f32 step by step, as the reference; only the power is rounded once from double, because
  // libraries differ in its last bit.
  std::vector<float> frequencies(rotary_dim / 2);
  const float scale = static_cast<float>(factor);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const float power = static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    frequencies[i] = frequency;
    switch (type) {
      case Type::kDefault:
        break;
      case Type::kLinear:
        frequencies[i] = frequency / scale;
        break;
      case Type::kLlama3:
        frequencies[i] = Llama3Frequency(*this, frequency);
        break;
      case Type::kYarn: {
        const float kept = YarnRange(*this, rotary_dim).Kept(i);
        frequencies[i] = 1.0f / (scale * power) * (1.0f - kept) + frequency * kept;
        break;
      }
      case Type::kLongRope:
        frequencies[i] = 1.0f / ((is_long ? long_divisors : short_divisors)[i] * power);
        break;
    }
  }
  for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= divisors[i];
  return frequencies;
}

}  // namespace tandem
