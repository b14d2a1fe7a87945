#ifndef TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
#define TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// What proposes (docs/drafters.md).
enum class DrafterKind {
  kAuto,           // in options alone: kModelAndNgram if there is a draft model, else kNgram
  kNone,           // nothing: plain decoding
  kModel,          // a draft model
  kNgram,          // what followed last time, in prompt or output
  kModelAndNgram,  // either, as pays off
};

// "auto", "none", "model", "ngram", "model+ngram".
std::string_view NameOf(DrafterKind kind);
// What kAuto stands for with and without a draft model; returns other kinds as they are.
DrafterKind ResolveDrafter(DrafterKind kind, bool has_model);
// Whether a draft model is part of it. REQUIRES: not kAuto.
bool HasModel(DrafterKind kind);
// INVALID_ARGUMENT naming the field `drafter` for other names.
absl::StatusOr<DrafterKind> ParseDrafterKind(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFTER_KIND_H_
