#include "draft/make_drafter.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "draft/model_drafter.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(std::string_view name,
                                                     const DrafterParts& parts) {
  if (name.empty()) name = parts.model != nullptr ? "model" : "none";
  if (name == "none") return nullptr;
  if (name == "model") {
    if (parts.model == nullptr) {
      return absl::InvalidArgumentError("drafter: \"model\" needs a draft model");
    }
    return std::make_unique<ModelDrafter>(parts.model, parts.cache, parts.target_vocab_size,
                                          parts.chunk_tokens);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "drafter: \"", absl::string_view(name.data(), name.size()), "\" is not one of model, none"));
}

}  // namespace tandem
