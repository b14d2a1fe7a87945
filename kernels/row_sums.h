// Sums over a row of the vocabulary. The host and devices add in the same order, so that
// distributions have the same bits on both. nvcc compiles this header too.
#ifndef TANDEM_KERNELS_ROW_SUMS_H_
#define TANDEM_KERNELS_ROW_SUMS_H_

#include <cstdint>

namespace tandem {

// A floating-point sum over a row is divided into chunks of kSumChunk entries, which are added in
// order. Each chunk has kSumLanes chains, one for each index modulo kSumLanes, which a tree adds
// (lanes 8 apart, then 4, 2, 1).
inline constexpr int kSumChunk = 2048;
inline constexpr int kSumLanes = 16;

// Sums of probabilities are integers in units of 2^-60, so that their order does not matter. A
// probability is truncated to units, which is exact from 2^-36 on. A whole row is about 2^60.
inline constexpr float kProbabilityUnits = 0x1p60f;
constexpr uint64_t InUnits(float probability) {
  // Converts through a signed integer, for which processors have an instruction.
  return static_cast<uint64_t>(static_cast<int64_t>(probability * kProbabilityUnits));
}
// The factor that makes probabilities whose sum is `sum` units add up to 1.
constexpr float InverseOfUnits(uint64_t sum) {
  return static_cast<float>(0x1p60 / static_cast<double>(sum));
}
// The smallest sum, in units, that is at least `share`. REQUIRES: 0 < share <= 1.
constexpr uint64_t UnitsToReach(float share) {
  const uint64_t below = InUnits(share);
  return below + (static_cast<float>(below) < share * kProbabilityUnits ? 1 : 0);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_SUMS_H_
