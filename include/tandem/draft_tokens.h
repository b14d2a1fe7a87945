#ifndef TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
#define TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_

#include "tandem/parameter.h"

namespace tandem {

// The most tokens a drafter may propose in one round.
inline constexpr int kMaxDraftTokens = 32;
// In place of a number of draft tokens: as many as pay off, round by round.
inline constexpr int kAutoDraftTokens = -1;
inline constexpr Limits kDraftTokenLimits = {
    .low = 0, .high = kMaxDraftTokens, .unset = kAutoDraftTokens, .word = "auto"};
// In place of a number of tokens of the draft's head: those that are worth computing.
inline constexpr int kAutoDraftHeadTokens = -1;
// In place of a draft's window: one that keeps the prompt's reading short.
inline constexpr int kAutoDraftWindow = -1;

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
