#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/reasoning.h"

namespace tandem {

void ReasoningFields::Read(RequestFields* fields) {
  fields->Read("separate_reasoning", &separate);
  fields->Read("include_reasoning", &include);
  fields->Read("stream_reasoning", &stream);
  ReadLimit(fields);
}

void ReasoningFields::ReadLimit(RequestFields* fields) {
  constexpr int kNoLimit = -1;
  std::optional<std::string> first;
  const auto take = [&](const std::string& name, int value) {
    const std::optional<int> limit = value == kNoLimit ? std::nullopt : std::optional<int>(value);
    if (first.has_value() && limit != max_thinking_tokens) {
      fields->FailNot(name, value, absl::StrCat("the same as ", *first));
    }
    if (first.has_value()) return;
    first = limit_field = name;
    max_thinking_tokens = limit;
  };
  std::optional<int> own;
  fields->Read("max_thinking_tokens", &own, {.low = 0});
  if (own.has_value()) take("max_thinking_tokens", *own);
  for (const char* name : {"thinking_token_budget", "thinking_budget", "reasoning_budget",
                           "reasoning_budget_tokens", "thinking_budget_tokens"}) {
    std::optional<int> value;
    fields->Read(name, &value, {.low = kNoLimit});
    if (value.has_value()) take(name, *value);
  }
  const JsonValue* params = fields->Find("custom_params");
  if (params == nullptr) return;
  RequestFields inner(params, fields->PathOf("custom_params"), fields->ignored());
  std::optional<int> value;
  inner.Read("thinking_budget", &value, {.low = kNoLimit});
  for (const std::string& other : inner.UnknownMembers()) inner.AllowOnly(other, {});
  fields->Fail(inner.Finish());
  if (value.has_value()) take("custom_params.thinking_budget", *value);
}

absl::Status SetReasoning(const ReasoningFields& fields, ChatInput chat, const ServedModel& model,
                          ApiRequest* request) {
  chat.max_thinking_tokens = fields.max_thinking_tokens;
  const auto limit = ThinkingLimitOf(chat, *model.chat_template, model.reasoning);
  if (!limit.ok()) return WithField(limit.status(), fields.limit_field);
  if (!model.reasoning.has_value()) return absl::OkStatus();
  const bool separates = model.splits_reasoning && fields.separate;
  ReasoningSplitter::Options options{.format = *model.reasoning};
  if (chat.continue_final_message) {
    ReasoningSplitter said(options);
    const AnswerDelta before = said.Push(EchoOf(chat));
    options.start = said.StartOfRest();
    if (request->echo && separates) {
      request->echoed = before.content;
      request->echoed_reasoning = before.reasoning;
    }
  } else {
    options.start = ReasoningStartOf(options.format, *model.tokenizer, request->prompts.front());
  }
  Request& asked = request->request;
  if (asked.choice_law == ChoiceLaw::kConditional && separates) {
    if (options.start == ReasoningStart::kNone || options.start == ReasoningStart::kMayBegin) {
      return absl::OkStatus();
    }
    return FieldError("choice_law",
                      "found \"conditional\", but the prompt ends within the model's reasoning; "
                      "allowed there: masked. A template may leave the reasoning out with "
                      "chat_template_kwargs {\"enable_thinking\": false}");
  }
  if (separates) {
    request->reading.AddReasoning(
        {.splitter = options, .is_shown = fields.include, .is_streamed = fields.stream},
        *model.tokenizer, &asked.constraint, &asked.shown_special_tokens);
  }
  // A constraint on the whole text leaves no place for reasoning.
  const bool may_reason = request->reading.reasoning.has_value() || !asked.constraint.has_value();
  if (limit->has_value() && may_reason) {
    asked.thinking_budget = {.max_tokens = **limit, .markers = options};
  }
  return absl::OkStatus();
}

}  // namespace tandem
