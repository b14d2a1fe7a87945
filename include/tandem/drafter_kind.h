#ifndef TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
#define TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// The source of proposals (docs/drafting/drafters.md).
enum class DrafterKind {
  kAuto,           // only in options: kModelAndNgram or kHeadAndNgram with a draft, else kNgram
  kNone,           // nothing: plain decoding
  kModel,          // a draft model
  kNgram,          // tokens that followed earlier in the prompt or output
  kModelAndNgram,  // whichever pays off
  kHead,           // a draft head, which reads the target's states (docs/drafting/draft_heads.md)
  kHeadAndNgram,   // whichever pays off
};

// The kinds of draft.
enum class DraftForm { kNone, kModel, kHead };

// "auto", "none", "model", "ngram", "model+ngram", "eagle3", "eagle3+ngram".
std::string_view NameOf(DrafterKind kind);
// Replaces kAuto with the kind for this form of draft. With a head, kModel and kModelAndNgram
// become kHead and kHeadAndNgram, because these names mean the draft whatever its form. Returns
// other kinds unchanged.
DrafterKind ResolveDrafter(DrafterKind kind, DraftForm draft);
// The form of draft that `kind` needs. REQUIRES: not kAuto.
DraftForm DraftFormOf(DrafterKind kind);
// Whether `kind` uses a draft model or head. REQUIRES: not kAuto.
bool HasModel(DrafterKind kind);
// Whether `kind` uses n-gram lookup. REQUIRES: not kAuto.
bool HasLookup(DrafterKind kind);
// INVALID_ARGUMENT naming the field `drafter` for other names.
absl::StatusOr<DrafterKind> ParseDrafterKind(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
