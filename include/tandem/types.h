#ifndef TANDEM_INCLUDE_TANDEM_TYPES_H_
#define TANDEM_INCLUDE_TANDEM_TYPES_H_

#include <cstdint>

namespace tandem {

// An entry of a vocabulary. Valid ids are in [0, vocab_size).
using TokenId = int32_t;

// In place of the id of a mask token: there is none.
inline constexpr TokenId kNoMaskToken = -1;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TYPES_H_
