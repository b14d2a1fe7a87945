#include <optional>
#include <utility>
#include <vector>

#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/reasoning.h"

namespace tandem {

void ReasoningFields::Read(RequestFields* fields) {
  fields->Read("separate_reasoning", &separate);
  fields->Read("include_reasoning", &include);
  fields->Read("stream_reasoning", &stream);
}

absl::Status SetReasoning(const ReasoningFields& fields, const ChatInput& chat,
                          const ServedModel& model, ApiRequest* request) {
  if (!model.reasoning.has_value() || !fields.separate) return absl::OkStatus();
  ReasoningSplitter::Options options{.format = *model.reasoning};
  if (chat.continue_final_message) {
    ReasoningSplitter said(options);
    const AnswerDelta before = said.Push(EchoOf(chat));
    options.start = said.StartOfRest();
    if (request->echo) {
      request->echoed = before.content;
      request->echoed_reasoning = before.reasoning;
    }
  } else {
    options.start = ReasoningStartOf(options.format, *model.tokenizer, request->prompts.front());
  }
  if (request->request.choice_law == ChoiceLaw::kConditional) {
    if (options.start == ReasoningStart::kNone || options.start == ReasoningStart::kMayBegin) {
      return absl::OkStatus();
    }
    return FieldError("choice_law",
                      "found \"conditional\", but the prompt ends within the model's reasoning; "
                      "allowed there: masked. A template may leave the reasoning out with "
                      "chat_template_kwargs {\"enable_thinking\": false}");
  }
  request->reading.AddReasoning(
      {.splitter = options, .is_shown = fields.include, .is_streamed = fields.stream},
      *model.tokenizer, &request->request.constraint, &request->request.shown_special_tokens);
  return absl::OkStatus();
}

}  // namespace tandem
