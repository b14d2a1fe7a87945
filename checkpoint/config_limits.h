// Upper bounds that no model comes near, so that products of sizes stay far from overflow and an
// absurd size is an error before anything is allocated.
#ifndef TANDEM_CHECKPOINT_CONFIG_LIMITS_H_
#define TANDEM_CHECKPOINT_CONFIG_LIMITS_H_

namespace tandem {

inline constexpr int kMaxLayers = 10'000;
inline constexpr int kMaxHidden = 1 << 20;
inline constexpr int kMaxVocab = 1 << 24;
inline constexpr int kMaxTargetStates = 64;  // that a draft head reads for each token
inline constexpr int kMaxExperts = 1 << 12;
inline constexpr int kMaxHeads = 1 << 14;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxContext = 1 << 30;
inline constexpr double kLeastEpsilon = 1e-30;
inline constexpr double kLeastMultiplier = 1e-9;
inline constexpr double kMostMultiplier = 1e9;
inline constexpr double kMaxTheta = 1e15;
inline constexpr double kMaxRopeFactor = 1e6;

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_CONFIG_LIMITS_H_
