#include "server/api/reasoning_fields.h"

#include <optional>
#include <string_view>
#include <utility>

#include "chat/reasoning.h"
#include "server/api/chat_fields.h"

namespace tandem {
namespace {

// Where an answer begins that goes on with what somebody has said of it.
ReasoningStart StartBehind(const ReasoningSplitter& said) {
  if (said.is_over()) return ReasoningStart::kNone;
  return said.has_reasoned() ? ReasoningStart::kGoesOn : ReasoningStart::kMayBegin;
}

}  // namespace

void ReasoningFields::Read(RequestFields* fields) {
  fields->Read("separate_reasoning", &separate);
  fields->Read("include_reasoning", &include);
  fields->Read("stream_reasoning", &stream);
}

void SetReasoning(const ReasoningFields& fields, const ChatInput& chat, const ServedModel& model,
                  ApiRequest* request) {
  if (!model.reasoning.has_value() || !fields.separate) return;
  ReasoningSplitter::Options options{.format = *model.reasoning};
  if (chat.continue_final_message) {
    ReasoningSplitter said(options);
    const AnswerDelta before = said.Push(EchoOf(chat));
    options.start = StartBehind(said);
    if (request->echo) {
      request->echoed = before.content;
      request->echoed_reasoning = before.reasoning;
    }
  } else {
    options.start = ReasoningStartOf(options.format, *model.tokenizer, request->prompts.front());
  }
  const bool is_special = options.format.IsSpecial(*model.tokenizer);
  std::optional<OutputConstraint>& constraint = request->request.constraint;
  if (constraint.has_value() && is_special) return;
  if (options.start == ReasoningStart::kNone) return;
  if (constraint.has_value()) constraint = BehindReasoning(options, *std::move(constraint));
  request->reasoning = {
      .splitter = options, .is_shown = fields.include, .is_streamed = fields.stream};
  if (!is_special) return;
  for (const std::string_view marker : {options.format.begin, options.format.end}) {
    const TokenId id = model.tokenizer->IdOf(marker);
    if (id >= 0) request->request.shown_special_tokens.push_back(id);
  }
}

}  // namespace tandem
