#ifndef TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
#define TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tandem/parameter.h"
#include "tandem/types.h"

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

// The mask token with which a draft model proposes several tokens in one pass
// (docs/drafting/parallel_drafts.md): an id of the draft model from 0 on, or one of these.
enum class MaskToken : TokenId {
  kAuto = -2,            // the one that the draft's files name, if any
  kNone = kNoMaskToken,  // the draft model proposes one token in each of its passes
};

// "auto", "none" or a number.
std::string NameOf(MaskToken mask);
// INVALID_ARGUMENT naming the field `draft_mask_token` for other texts.
absl::StatusOr<MaskToken> ParseMaskToken(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFT_TOKENS_H_
