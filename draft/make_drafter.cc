#include "draft/make_drafter.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/named_values.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "draft/head_drafter.h"
#include "draft/model_drafter.h"
#include "draft/ngram_drafter.h"
#include "tandem/draft_tokens.h"
#include "tandem/drafter_kind.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr NamedValues<DrafterKind, 7> kNames = {{{DrafterKind::kAuto, "auto"},
                                                 {DrafterKind::kModel, "model"},
                                                 {DrafterKind::kNgram, "ngram"},
                                                 {DrafterKind::kModelAndNgram, "model+ngram"},
                                                 {DrafterKind::kHead, "eagle3"},
                                                 {DrafterKind::kHeadAndNgram, "eagle3+ngram"},
                                                 {DrafterKind::kNone, "none"}}};

constexpr NamedValues<DraftSource, kNumDraftSources> kSourceNames = {
    {{DraftSource::kModel, "model"},
     {DraftSource::kLookup, "lookup"},
     {DraftSource::kForced, "forced"},
     {DraftSource::kPredicted, "predicted"},
     {DraftSource::kMemory, "memory"},
     {DraftSource::kSuccessors, "successors"},
     {DraftSource::kText, "text"}}};

// Returns INVALID_ARGUMENT unless `parts` has the draft model or head that `kind` needs.
absl::Status CheckHas(DrafterKind kind, const DrafterParts& parts) {
  const DraftForm needed = DraftFormOf(kind);
  if (needed == DraftForm::kNone || needed == parts.form()) return absl::OkStatus();
  const auto name = [](DraftForm form) {
    return form == DraftForm::kHead ? "a draft head" : "a draft model";
  };
  return FieldError("drafter",
                    absl::StrCat("\"", View(NameOf(kind)), "\" needs ", name(needed), ", but ",
                                 parts.form() == DraftForm::kNone
                                     ? "no draft is given"
                                     : absl::StrCat("the given draft is ", name(parts.form()))));
}

std::unique_ptr<Drafter> MakeModelDrafter(const DrafterParts& parts) {
  if (parts.form() == DraftForm::kHead) {
    return std::make_unique<HeadDrafter>(
        HeadDrafter::Parts{.head = parts.model,
                           .target = parts.target,
                           .backend = parts.backend,
                           .page_size = parts.cache->layout().page_size,
                           .target_vocab_size = parts.target_vocab_size,
                           .chunk_tokens = parts.chunk_tokens});
  }
  auto model =
      std::make_unique<ModelDrafter>(parts.model, parts.cache, parts.target_vocab_size,
                                     parts.chunk_tokens, parts.vocabulary, parts.mask_token);
  if (parts.window.recent == 0) return model;
  return ShowWindow(std::move(model), parts.window);
}

}  // namespace

std::string_view NameOf(DrafterKind kind) { return NameIn(kNames, kind); }

std::string_view NameOf(DraftSource source) { return NameIn(kSourceNames, source); }

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

std::string NameOf(MaskToken mask) {
  if (mask == MaskToken::kAuto) return "auto";
  if (mask == MaskToken::kNone) return "none";
  return absl::StrCat(static_cast<TokenId>(mask));
}

absl::StatusOr<MaskToken> ParseMaskToken(std::string_view text) {
  for (const MaskToken mask : {MaskToken::kAuto, MaskToken::kNone}) {
    if (text == NameOf(mask)) return mask;
  }
  TokenId id = 0;
  if (absl::SimpleAtoi(View(text), &id) && id >= 0) return MaskToken{id};
  return FieldError("draft_mask_token",
                    absl::StrCat("must be auto, none or an id from 0 on, got ", View(text)));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(DrafterKind kind, const DrafterParts& parts) {
  kind = ResolveDrafter(kind, parts.form());
  if (kind == DrafterKind::kNone) return std::unique_ptr<Drafter>();
  RETURN_IF_ERROR(CheckHas(kind, parts));
  auto lookup = std::make_unique<NgramDrafter>();
  if (kind == DrafterKind::kNgram) return lookup;
  std::unique_ptr<Drafter> model = MakeModelDrafter(parts);
  if (!HasLookup(kind)) return model;
  return CombineDrafters(std::move(model), std::move(lookup));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeEveryDrafter(DrafterKind usual,
                                                          const DrafterParts& parts) {
  usual = ResolveDrafter(usual, parts.form());
  RETURN_IF_ERROR(CheckHas(usual, parts));
  if (parts.model == nullptr) return std::make_unique<NgramDrafter>();
  return CombineDrafters(MakeModelDrafter(parts), std::make_unique<NgramDrafter>());
}

}  // namespace tandem
