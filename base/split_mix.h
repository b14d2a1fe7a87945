#ifndef TANDEM_BASE_SPLIT_MIX_H_
#define TANDEM_BASE_SPLIT_MIX_H_

#include <cstdint>

namespace tandem {

// One step of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every output bit depends
// on every bit of `x`.
inline uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace tandem

#endif  // TANDEM_BASE_SPLIT_MIX_H_
