#include "draft/make_drafter.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "draft/combined_drafter.h"
#include "draft/model_drafter.h"
#include "draft/ngram_drafter.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

absl::Status NeedsModel(DrafterKind kind) {
  return FieldError("drafter", absl::StrCat("\"", View(NameOf(kind)),
                                            "\" needs a draft model, and none is given"));
}

std::unique_ptr<Drafter> MakeModelDrafter(const DrafterParts& parts) {
  auto model = std::make_unique<ModelDrafter>(parts.model, parts.cache, parts.target_vocab_size,
                                              parts.chunk_tokens, parts.vocabulary);
  if (parts.window.recent == 0) return model;
  return std::make_unique<WindowedDrafter>(std::move(model), parts.window);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(DrafterKind kind, const DrafterParts& parts) {
  kind = ResolveDrafter(kind, parts.model != nullptr);
  if (kind == DrafterKind::kNone) return std::unique_ptr<Drafter>();
  auto lookup = std::make_unique<NgramDrafter>();
  if (kind == DrafterKind::kNgram) return lookup;
  if (parts.model == nullptr) return NeedsModel(kind);
  std::unique_ptr<Drafter> model = MakeModelDrafter(parts);
  if (kind == DrafterKind::kModel) return model;
  return std::make_unique<CombinedDrafter>(std::move(model), std::move(lookup));
}

absl::StatusOr<std::unique_ptr<Drafter>> MakeEveryDrafter(DrafterKind usual,
                                                          const DrafterParts& parts) {
  usual = ResolveDrafter(usual, parts.model != nullptr);
  if (parts.model == nullptr) {
    if (HasModel(usual)) return NeedsModel(usual);
    return std::make_unique<NgramDrafter>();
  }
  return std::make_unique<CombinedDrafter>(MakeModelDrafter(parts),
                                           std::make_unique<NgramDrafter>());
}

}  // namespace tandem
