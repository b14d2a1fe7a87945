#ifndef TANDEM_INCLUDE_TANDEM_DRAFT_SOURCE_H_
#define TANDEM_INCLUDE_TANDEM_DRAFT_SOURCE_H_

#include <string_view>

namespace tandem {

// The source of a draft. It determines the cost of one more draft token.
enum class DraftSource {
  kModel,   // a pass of a draft model or of a draft head
  kLookup,  // the sequence's own text: almost free
  // Known before any drafter runs, and free:
  kForced,     // the only tokens that the sequence's constraint allows
  kPredicted,  // the tokens that the request predicted
  // Almost free:
  kMemory,      // continuations of earlier texts
  kSuccessors,  // the tokens that usually follow the last one or two
  kText,        // a text that was given to draft from (draft_texts.h)
};
inline constexpr int kNumDraftSources = 7;

// "model", "lookup", "forced", "predicted", "memory", "successors" or "text".
std::string_view NameOf(DraftSource source);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFT_SOURCE_H_
