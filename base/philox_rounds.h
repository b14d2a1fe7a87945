// The constants of Philox4x32-10, plain, for whoever computes many blocks at once.
#ifndef TANDEM_BASE_PHILOX_ROUNDS_H_
#define TANDEM_BASE_PHILOX_ROUNDS_H_

#include <cstdint>

namespace tandem {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xBB67AE85;

}  // namespace tandem

#endif  // TANDEM_BASE_PHILOX_ROUNDS_H_
