#include "draft/make_drafter.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "draft/combined_drafter.h"
#include "draft/head_drafter.h"
#include "draft/model_drafter.h"
#include "draft/ngram_drafter.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// INVALID_ARGUMENT unless the parts have what a drafter needs.
absl::Status CheckHas(DrafterKind kind, const DrafterParts& parts) {
  const DraftForm needed = DraftFormOf(kind);
  if (needed == DraftForm::kNone || needed == parts.form()) return absl::OkStatus();
  const auto name = [](DraftForm form) {
    return form == DraftForm::kHead ? "a draft head" : "a draft model";
  };
  return FieldError("drafter",
                    absl::StrCat("\"", View(NameOf(kind)), "\" needs ", name(needed), ", and ",
                                 parts.form() == DraftForm::kNone
                                     ? "none is given"
                                     : absl::StrCat("what is given is ", name(parts.form()))));
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
  auto model = std::make_unique<ModelDrafter>(parts.model, parts.cache, parts.target_vocab_size,
                                              parts.chunk_tokens, parts.vocabulary);
  if (parts.window.recent == 0) return model;
  return std::make_unique<WindowedDrafter>(std::move(model), parts.window);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(DrafterKind kind, const DrafterParts& parts) {
  kind = ResolveDrafter(kind, parts.form());
  if (kind == DrafterKind::kNone) return std::unique_ptr<Drafter>();
  RETURN_IF_ERROR(CheckHas(kind, parts));
  auto lookup = std::make_unique<NgramDrafter>();
  if (kind == DrafterKind::kNgram) return lookup;
  std::unique_ptr<Drafter> model = MakeModelDrafter(parts);
  if (!HasLookup(kind)) return model;
  return std::make_unique<CombinedDrafter>(std::move(model), std::move(lookup));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeEveryDrafter(DrafterKind usual,
                                                          const DrafterParts& parts) {
  usual = ResolveDrafter(usual, parts.form());
  RETURN_IF_ERROR(CheckHas(usual, parts));
  if (parts.model == nullptr) return std::make_unique<NgramDrafter>();
  return std::make_unique<CombinedDrafter>(MakeModelDrafter(parts),
                                           std::make_unique<NgramDrafter>());
}

}  // namespace tandem
