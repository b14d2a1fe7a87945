// Sums over a row of the vocabulary in orders that the host and a device both keep, so that
// distributions have the same bits on either. Plain: read by nvcc, too.
#ifndef TANDEM_KERNELS_ROW_SUMS_H_
#define TANDEM_KERNELS_ROW_SUMS_H_

#include <cstdint>

namespace tandem {

// A floating-point sum over a row has kSumLanes chains in each chunk of so many entries, by index
// modulo kSumLanes, added by one tree (lanes 8 apart, then 4, 2, 1); chunks are added in order.
inline constexpr int kSumChunk = 2048;
inline constexpr int kSumLanes = 16;

// Sums of probabilities that are cut off, in units of 2^-60, so that their order does not matter:
// exact for what is at least 2^-36, and a whole row is at most some 2^60.
inline constexpr float kProbabilityUnits = 0x1p60f;
constexpr uint64_t InUnits(float probability) {
  // By way of signed numbers, which processors convert to.
  return static_cast<uint64_t>(static_cast<int64_t>(probability * kProbabilityUnits));
}
// What to multiply kept probabilities with whose sum that is.
constexpr float InverseOfUnits(uint64_t sum) {
  return static_cast<float>(0x1p60 / static_cast<double>(sum));
}
// The least sum that is `share` or more, for a share in (0, 1].
constexpr uint64_t UnitsToReach(float share) {
  const uint64_t below = InUnits(share);
  return below + (static_cast<float>(below) < share * kProbabilityUnits ? 1 : 0);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_SUMS_H_
