#ifndef TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
#define TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_

#include "tandem/parameter.h"

namespace tandem {

// The maximum number of tokens that a drafter may propose in one round.
inline constexpr int kMaxDraftTokens = 32;
// In place of a number of draft tokens: as many as pay off, chosen for each round.
inline constexpr int kAutoDraftTokens = -1;
inline constexpr Limits kDraftTokenLimits = {
    .low = 0, .high = kMaxDraftTokens, .unset = kAutoDraftTokens, .word = "auto"};
// In place of the size of the draft's head: the tokens that are worth computing.
inline constexpr int kAutoDraftHeadTokens = -1;
// In place of a draft's window: a size that keeps reading prompts cheap.
inline constexpr int kAutoDraftWindow = -1;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
