#include "draft/make_drafter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "draft/combined_drafter.h"
#include "draft/model_drafter.h"
#include "draft/ngram_drafter.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(std::string_view name,
                                                     const DrafterParts& parts) {
  if (name.empty()) name = parts.model != nullptr ? "model" : "ngram";
  if (name == "none") return std::unique_ptr<Drafter>();
  auto lookup = std::make_unique<NgramDrafter>();
  if (name == lookup->name()) return lookup;
  if (name != "model" && name != "model+ngram") {
    return absl::InvalidArgumentError(absl::StrCat(
        "drafter: \"", std::string(name), "\" is not one of model, ngram, model+ngram, none"));
  }
  if (parts.model == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("drafter: \"", std::string(name),
                                                   "\" needs a draft model, and none is given"));
  }
  auto model = std::make_unique<ModelDrafter>(parts.model, parts.cache, parts.target_vocab_size,
                                              parts.chunk_tokens, parts.vocabulary);
  if (name == model->name()) return model;
  return std::make_unique<CombinedDrafter>(std::move(model), std::move(lookup));
}

}  // namespace tandem
