#include "tandem/drafter_kind.h"

#include "base/named_values.h"

namespace tandem {
namespace {

constexpr NamedValues<DrafterKind, 7> kNames = {{{DrafterKind::kAuto, "auto"},
                                                 {DrafterKind::kModel, "model"},
                                                 {DrafterKind::kNgram, "ngram"},
                                                 {DrafterKind::kModelAndNgram, "model+ngram"},
                                                 {DrafterKind::kHead, "eagle3"},
                                                 {DrafterKind::kHeadAndNgram, "eagle3+ngram"},
                                                 {DrafterKind::kNone, "none"}}};

}  // namespace

std::string_view NameOf(DrafterKind kind) { return NameIn(kNames, kind); }

DrafterKind ResolveDrafter(DrafterKind kind, DraftForm draft) {
  if (draft == DraftForm::kHead && kind == DrafterKind::kModel) return DrafterKind::kHead;
  if (draft == DraftForm::kHead && kind == DrafterKind::kModelAndNgram) {
    return DrafterKind::kHeadAndNgram;
  }
  if (kind != DrafterKind::kAuto) return kind;
  switch (draft) {
    case DraftForm::kNone:
      return DrafterKind::kNgram;
    case DraftForm::kModel:
      return DrafterKind::kModelAndNgram;
    case DraftForm::kHead:
      return DrafterKind::kHeadAndNgram;
  }
  TANDEM_CHECK(false);
}

DraftForm DraftFormOf(DrafterKind kind) {
  TANDEM_CHECK(kind != DrafterKind::kAuto);
  if (kind == DrafterKind::kModel || kind == DrafterKind::kModelAndNgram) return DraftForm::kModel;
  if (kind == DrafterKind::kHead || kind == DrafterKind::kHeadAndNgram) return DraftForm::kHead;
  return DraftForm::kNone;
}

bool HasModel(DrafterKind kind) { return DraftFormOf(kind) != DraftForm::kNone; }

bool HasLookup(DrafterKind kind) {
  TANDEM_CHECK(kind != DrafterKind::kAuto);
  return kind == DrafterKind::kNgram || kind == DrafterKind::kModelAndNgram ||
         kind == DrafterKind::kHeadAndNgram;
}

absl::StatusOr<DrafterKind> ParseDrafterKind(std::string_view name) {
  return ValueOf(kNames, "drafter", name);
}

}  // namespace tandem
