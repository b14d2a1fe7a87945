#include "tandem/drafter_kind.h"

#include "base/named_values.h"

namespace tandem {
namespace {

constexpr NamedValues<DrafterKind, 5> kNames = {{{DrafterKind::kAuto, "auto"},
                                                 {DrafterKind::kModel, "model"},
                                                 {DrafterKind::kNgram, "ngram"},
                                                 {DrafterKind::kModelAndNgram, "model+ngram"},
                                                 {DrafterKind::kNone, "none"}}};

}  // namespace

std::string_view NameOf(DrafterKind kind) { return NameIn(kNames, kind); }

DrafterKind ResolveDrafter(DrafterKind kind, bool has_model) {
  if (kind != DrafterKind::kAuto) return kind;
  return has_model ? DrafterKind::kModelAndNgram : DrafterKind::kNgram;
}

bool HasModel(DrafterKind kind) {
  TANDEM_CHECK(kind != DrafterKind::kAuto);
  return kind == DrafterKind::kModel || kind == DrafterKind::kModelAndNgram;
}

absl::StatusOr<DrafterKind> ParseDrafterKind(std::string_view name) {
  return ValueOf(kNames, "drafter", name);
}

}  // namespace tandem
