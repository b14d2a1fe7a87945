#include "tandem/chat_answer.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/answer_reader.h"
#include "tandem/field_error.h"
#include "text/chat/tool_tags.h"

namespace tandem {

void AnswerReader::Options::AddReasoning(const Reasoning& given, const Tokenizer& tokenizer,
                                         std::optional<OutputConstraint>* constraint,
                                         std::vector<TokenId>* shown_special_tokens) {
  if (given.splitter.start == ReasoningStart::kNone) return;
  const std::vector<TokenId> special = given.splitter.format.SpecialTokenIds(tokenizer);
  if (constraint->has_value()) {
    if (!special.empty()) return;
    *constraint = AfterReasoning(given.splitter, *std::move(*constraint));
  }
  reasoning = given;
  shown_special_tokens->insert(shown_special_tokens->end(), special.begin(), special.end());
}

AnswerReader::AnswerReader(const Options& options) : reasoning_(options.reasoning) {
  if (options.reasoning.has_value()) splitter_.emplace(options.reasoning->splitter);
  if (options.tools.has_value()) tools_.emplace(*options.tools);
}

AnswerDelta AnswerReader::Read(const Options& options, std::string_view text) {
  AnswerReader reader(options);
  AnswerDelta answer = reader.Push(text);
  answer.Append(reader.Finish());
  return answer;
}

AnswerDelta AnswerReader::Shown(AnswerDelta delta, bool is_last) {
  if (!reasoning_->is_shown) delta.reasoning.clear();
  if (reasoning_->is_streamed) return delta;
  held_reasoning_ += delta.reasoning;
  delta.reasoning.clear();
  if (is_last || splitter_->is_over()) {
    delta.reasoning = std::exchange(held_reasoning_, std::string());
  }
  return delta;
}

AnswerDelta AnswerReader::Push(std::string_view text) {
  AnswerDelta delta{.content = std::string(text)};
  if (splitter_.has_value()) delta = Shown(splitter_->Push(text), /*is_last=*/false);
  if (!tools_.has_value()) return delta;
  const std::string said = std::exchange(delta.content, std::string());
  delta.Append(tools_->Push(said));
  return delta;
}

AnswerDelta AnswerReader::Finish() {
  AnswerDelta delta;
  if (splitter_.has_value()) delta = Shown(splitter_->Finish(), /*is_last=*/true);
  if (!tools_.has_value()) return delta;
  const std::string said = std::exchange(delta.content, std::string());
  delta.Append(tools_->Push(said));
  delta.Append(tools_->Finish());
  return delta;
}

namespace {

using Json = JsonValue;

absl::Status AddTools(const ChatTemplate& chat, const Tokenizer& tokenizer, const Json& tools,
                      bool is_constrained, ChatAnswer* answer) {
  ASSIGN_OR_RETURN(const std::vector<ToolFunction> functions, ToolFunctionsOf(tools));
  if (functions.empty()) return absl::OkStatus();
  ToolCallParser::Options options{.format = ToolFormat::Of(chat)};
  options.functions = CallablesOf(functions, options.format);
  const std::vector<SpecialMarker> special =
      SpecialMarkersAmong(options.format.Markers(), tokenizer);
  const auto strict = absl::c_find_if(functions, [](const ToolFunction& f) { return f.is_strict; });
  const bool has_strict = strict != functions.end();
  for (const SpecialMarker& marker : special) answer->shown_special_tokens.push_back(marker.second);
  if (has_strict && is_constrained) {
    return FieldError(absl::StrCat(strict->field, ".strict"),
                      "found true, allowed next to a constraint: false");
  }
  if (has_strict) {
    const ToolTagOptions held{.format = options.format, .special = special};
    ASSIGN_OR_RETURN(const Json tag, OptionalCallsTag(held, functions));
    answer->constraint = ConstraintFor(held, tag);
  }
  // As in the server: with a constraint, the model always writes the markers around calls.
  if ((has_strict || is_constrained) && !options.format.is_bare()) {
    options.format.may_lack_markers = false;
  }
  answer->reading.tools = std::move(options);
  return absl::OkStatus();
}

ReasoningStart StartOf(const ReasoningFormat& format, const Tokenizer& tokenizer,
                       const ChatInput& input, absl::Span<const TokenId> prompt) {
  if (!input.continue_final_message) return ReasoningStartOf(format, tokenizer, prompt);
  ReasoningSplitter said({.format = format});
  const Json& last = input.messages.back();
  if (const auto content = last.find("content"); content != last.end() && content->is_string()) {
    said.Push(content->get_ref<const std::string&>());
  }
  return said.StartOfRest();
}

absl::Status AddReasoning(const ChatTemplate& chat, const Tokenizer& tokenizer,
                          const ChatInput& input, absl::Span<const TokenId> prompt,
                          bool is_constrained, ChatAnswer* answer) {
  const std::optional<ReasoningFormat> format = ReasoningFormat::Of(chat, tokenizer);
  ASSIGN_OR_RETURN(const std::optional<int> limit, ThinkingLimitOf(input, chat, format));
  if (!format.has_value()) return absl::OkStatus();
  ReasoningSplitter::Options options{.format = *format,
                                     .start = StartOf(*format, tokenizer, input, prompt)};
  // A caller's constraint covers the whole text, so reasoning must begin with its marker.
  const bool may_reason = options.start != ReasoningStart::kNone;
  if (is_constrained && may_reason) options.start = ReasoningStart::kMayBegin;
  answer->reading.AddReasoning({.splitter = options}, tokenizer, &answer->constraint,
                               &answer->shown_special_tokens);
  if (is_constrained && input.max_thinking_tokens.has_value()) {
    return FieldError("max_thinking_tokens",
                      absl::StrCat("found ", *limit, ", allowed next to a constraint: none"));
  }
  if (limit.has_value() && !is_constrained && answer->reading.reasoning.has_value()) {
    answer->thinking_budget = {.max_tokens = *limit, .markers = options};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatAnswer> ChatAnswer::Of(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                          const ChatInput& input, absl::Span<const TokenId> prompt,
                                          bool is_constrained) {
  ChatAnswer answer;
  RETURN_IF_ERROR(AddTools(chat, tokenizer, input.tools, is_constrained, &answer));
  RETURN_IF_ERROR(AddReasoning(chat, tokenizer, input, prompt, is_constrained, &answer));
  return answer;
}

Json AssistantMessage(const AnswerDelta& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const AnswerDelta::Call& call : answer.calls) {
    // The arguments of a call that was cut short are not JSON and stay a string.
    absl::StatusOr<Json> arguments = ParseJsonValue(call.arguments, "arguments");
    Json function = {{"name", call.name}};
    function["arguments"] = arguments.ok() ? *std::move(arguments) : Json(call.arguments);
    Json json = {{"id", Format("call%05d", call.index)}, {"type", "function"}};
    json["function"] = std::move(function);
    message["tool_calls"].push_back(std::move(json));
  }
  return message;
}

}  // namespace tandem
