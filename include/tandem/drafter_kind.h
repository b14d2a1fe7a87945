#ifndef TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
#define TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// What proposes (docs/drafters.md).
enum class DrafterKind {
  kAuto,   // in options alone: kModelAndNgram or kHeadAndNgram as there is a draft, else kNgram
  kNone,   // nothing: plain decoding
  kModel,  // a draft model
  kNgram,  // what followed last time, in prompt or output
  kModelAndNgram,  // either, as pays off
  kHead,           // a draft head, which reads the target's states (docs/draft_heads.md)
  kHeadAndNgram,   // either, as pays off
};

// The kinds of drafts.
enum class DraftForm { kNone, kModel, kHead };

// "auto", "none", "model", "ngram", "model+ngram", "eagle3", "eagle3+ngram".
std::string_view NameOf(DrafterKind kind);
// What kAuto stands for with such a draft; with a head also what kModel and kModelAndNgram stand
// for, which name the draft whatever its form. Returns other kinds as they are.
DrafterKind ResolveDrafter(DrafterKind kind, DraftForm draft);
// The kind of draft that it needs. REQUIRES: not kAuto.
DraftForm DraftFormOf(DrafterKind kind);
// Whether a draft model or a head is part of it. REQUIRES: not kAuto.
bool HasModel(DrafterKind kind);
// Whether it looks up what followed last time. REQUIRES: not kAuto.
bool HasLookup(DrafterKind kind);
// INVALID_ARGUMENT naming the field `drafter` for other names.
absl::StatusOr<DrafterKind> ParseDrafterKind(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
