#include "server/api/served_model.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/string_view.h"
#include "server/api/api_error.h"
#include "server/api/token_endpoints.h"
#include "tandem/drafter_kind.h"
#include "tandem/field_error.h"

namespace tandem {

ServedModel ServedModel::Of(const Engine& engine, const std::string& name, int max_sequences,
                            int64_t max_answer_bytes) {
  const ModelInfo target = engine.target_info();
  const std::optional<ModelInfo> draft = engine.draft_info();
  std::vector<std::string> drafters;
  for (const DrafterKind kind : engine.drafters()) drafters.emplace_back(NameOf(kind));
  const absl::StatusOr<ChatTemplate::Source> source = ChatTemplate::ReadSource(target.path);
  absl::StatusOr<ChatTemplate> chat_template =
      source.ok() ? ChatTemplate::Parse(*source) : absl::StatusOr<ChatTemplate>(source.status());
  const ToolFormat tool_format = chat_template.ok() ? ToolFormat::Of(*chat_template) : ToolFormat();
  const std::optional<ReasoningFormat> reasoning =
      chat_template.ok() ? ReasoningFormat::Of(*chat_template, engine.tokenizer()) : std::nullopt;
  ServedModel model = {.name = name,
                       .tokenizer = &engine.tokenizer(),
                       .chat_template = std::move(chat_template),
                       .tool_format = tool_format,
                       .reasoning = reasoning,
                       .drafter = std::string(NameOf(engine.drafter())),
                       .drafters = std::move(drafters),
                       .parallel_draft = draft.has_value() && draft->mask_token.has_value(),
                       .context_length = target.context_length,
                       .cache_tokens = int64_t{target.num_pages} * target.page_size,
                       .max_sequences = max_sequences,
                       .max_answer_bytes = max_answer_bytes};
  model.tokenizer_info =
      source.ok() ? TokenizerInfo(target.path, *source, engine.tokenizer(), model.MaxLength())
                  : absl::StatusOr<std::string>(source.status());
  return model;
}

bool ServedModel::HasChatTemplate() const {
  return chat_template.ok() && !chat_template->is_plain();
}

int ServedModel::MaxLength() const {
  return static_cast<int>(std::min<int64_t>(context_length, cache_tokens));
}

std::optional<DrafterKind> ServedModel::DrafterNamed(const std::string& drafter_name) const {
  const absl::StatusOr<DrafterKind> kind = ParseDrafterKind(drafter_name);
  if (!kind.ok() || *kind == DrafterKind::kAuto) return std::nullopt;
  if (*kind == DrafterKind::kNone) return kind.value();
  for (const DrafterKind meant : {*kind, ResolveDrafter(*kind, DraftForm::kHead)}) {
    if (absl::c_linear_search(drafters, View(NameOf(meant)))) return meant;
  }
  return std::nullopt;
}

absl::Status NoSuchModel(const std::string& name, absl::string_view allowed) {
  return WithCode(
      FieldError("model", absl::StrCat(Quoted(name), " is not served here, allowed: ", allowed)),
      "model_not_found", 404);
}

absl::Status CheckModelName(const std::string& name, const ServedModel& model) {
  return name == model.name ? absl::OkStatus() : NoSuchModel(name, model.name);
}

}  // namespace tandem
