#include "tandem/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/generic_tools.h"
#include "text/chat/jinja/jinja_template.h"
#include "text/chat/jinja/text_tools.h"
#include "text/chat/jinja/value_text.h"

namespace tandem {

using jinja::Value;
using Prompt = jinja::MarkedText;

struct ChatTemplate::Programs {
  bool is_plain = false;
  std::string texts;  // the source of all programs
  jinja::Template conversation;
  std::optional<jinja::Template> tool_use;
  jinja::Template::Variables tokens;
};

namespace {

// Used for models without a template.
constexpr char kPlain[] =
    "{%- set ns = namespace(has_text=false) -%}"
    "{%- for message in messages -%}"
    "{%- if ns.has_text and message.role != 'assistant' %}{{ '\\n' }}{% endif -%}"
    "{{ message.content }}"
    "{%- if message.content or ns.has_text %}{% set ns.has_text = true %}{% endif -%}"
    "{%- endfor -%}";

// The roles that published templates know.
constexpr std::array<std::string_view, 11> kRoles = {
    "system", "developer", "user",  "assistant", "tool",       "function",
    "model",  "ipython",   "human", "gpt",       "observation"};
// The names that clients use for a message's reasoning. Templates read the first one.
constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};
constexpr size_t kMaxKwargs = 256;  // bounds the linear search for a variable's name
// Variables that kwargs cannot set.
constexpr std::array<std::string_view, 3> kOwnNames = {"messages", "tools",
                                                       "add_generation_prompt"};

// Appended to the last message's content. The rendered text is cut where this marker begins.
constexpr char kContinuation[] = "CONTINUE-FINAL-MESSAGE ";
// A text that no template writes itself, used as an answer or a name in trial renderings.
constexpr char kProbe[] = "probe-of-an-answer";

bool IsUsualRole(const JsonValue& role) {
  return std::any_of(kRoles.begin(), kRoles.end(),
                     [&](std::string_view usual) { return IsText(role, View(usual)); });
}

// Converts a message to a template's value. Usual roles become the template's own text, so that
// they may form special tokens. Reasoning gets the names that templates read.
absl::StatusOr<Value> MessageValue(const JsonValue& message) {
  jinja::Dict dict;
  for (const auto& [key, member] : message.items()) {
    ASSIGN_OR_RETURN(Value value, jinja::FromJson(member));
    if (key == "role" && IsUsualRole(member)) value = Value::Own(value.text()->text());
    ASSIGN_OR_RETURN(Value name, jinja::FromJson(JsonValue(key)));
    RETURN_IF_ERROR(dict.Set(std::move(name), std::move(value)));
  }
  for (const char* name : kReasoning) {
    const Value* found = dict.Find(std::string_view(name));
    if (found == nullptr || found->is_none()) continue;
    const Value reasoning = *found;
    dict.Set("reasoning_content", reasoning);
    if (dict.Find(std::string_view("thinking")) == nullptr) dict.Set("thinking", reasoning);
    break;
  }
  return Value::OfDict(std::move(dict));
}

absl::Status CheckMessages(const ChatInput& input) {
  if (!input.messages.is_array()) return FieldError("messages", "is not a list");
  if (input.messages.empty()) return FieldError("messages", "is empty");
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const JsonValue& message = input.messages[i];
    const std::string field = absl::StrCat("messages[", i, "]");
    if (!message.is_object()) return FieldError(field, "is not an object");
    if (!message.contains("role") || !message.at("role").is_string()) {
      return FieldError(absl::StrCat(field, ".role"), "is not a string");
    }
  }
  if (!input.continue_final_message) return absl::OkStatus();
  if (input.add_generation_prompt) {
    return FieldError("continue_final_message", "must be false if add_generation_prompt is true");
  }
  const JsonValue& last = input.messages.back();
  if (last.contains("content") && last.at("content").is_string()) return absl::OkStatus();
  return FieldError(absl::StrCat("messages[", input.messages.size() - 1, "].content"),
                    "is not a string, which continue_final_message requires");
}

absl::StatusOr<jinja::Template::Variables> VariablesOf(const ChatInput& input,
                                                       const jinja::Template::Variables& tokens) {
  jinja::Template::Variables variables = tokens;
  std::vector<Value> messages;
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const JsonValue* message = &input.messages[i];
    JsonValue continued;
    if (input.continue_final_message && i + 1 == input.messages.size()) {
      continued = *message;
      continued["content"] = continued["content"].get<std::string>() + kContinuation;
      message = &continued;
    }
    absl::StatusOr<Value> value = MessageValue(*message);
    if (!value.ok()) return FieldError("messages", value.status().message());
    messages.push_back(*std::move(value));
  }
  variables.emplace_back("messages", Value::OfList(std::move(messages)));
  const absl::StatusOr<Value> tools = jinja::FromJson(input.tools);
  if (!tools.ok()) return FieldError("tools", tools.status().message());
  variables.emplace_back("tools", *tools);
  variables.emplace_back("documents", Value::None());
  variables.emplace_back("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  if (!input.kwargs.is_object()) return FieldError("chat_template_kwargs", "is not an object");
  if (input.kwargs.size() > kMaxKwargs) {
    return FieldError("chat_template_kwargs", absl::StrCat("has ", input.kwargs.size(),
                                                           " variables, allowed: ", kMaxKwargs));
  }
  for (const auto& [name, given] : input.kwargs.items()) {
    const std::string field = absl::StrCat("chat_template_kwargs.", Quoted(name));
    if (std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end()) {
      return FieldError(field, "is a field of its own and cannot be set here");
    }
    absl::StatusOr<Value> value = jinja::FromJson(given);
    if (!value.ok()) return FieldError(field, value.status().message());
    variables.emplace_back(name, *std::move(value));
  }
  return variables;
}

// Cuts the text at the end of the last message's content.
absl::StatusOr<Prompt> CutAtContinuation(const Prompt& text) {
  const absl::string_view whole = text.text();
  const absl::string_view tag = kContinuation;
  const size_t at = whole.rfind(absl::StripAsciiWhitespace(tag));
  if (at == absl::string_view::npos) {
    return FieldError("continue_final_message",
                      "the chat template does not write the last message's content in full");
  }
  const Prompt cut = text.Slice(0, at);
  if (whole.substr(at, tag.size()) == tag) return cut;
  // The template trims the contents of messages.
  return jinja::Stripped(cut, /*chars=*/nullptr, {.left = false, .right = true});
}

// Makes one line of a template's message: control characters become spaces, and at most 1000 bytes
// are kept.
std::string OneLine(absl::string_view text) {
  constexpr size_t kMaxBytes = 1000;
  std::string line(text.substr(0, kMaxBytes));
  std::replace_if(
      line.begin(), line.end(),
      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, ' ');
  return line;
}

absl::StatusOr<jinja::Template> ParseNamed(std::string_view name, std::string_view text) {
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(text);
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.status().code(),
                      absl::StrCat(View(name), ": ", parsed.status().message()));
}

bool IsBlank(std::string_view text) { return jinja::LeadingSpace(text) == text.size(); }

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(const Source& source) {
  const bool is_plain = IsBlank(source.jinja);
  ASSIGN_OR_RETURN(jinja::Template conversation,
                   ParseNamed("chat_template", is_plain ? kPlain : std::string_view(source.jinja)));
  Programs programs{.is_plain = is_plain,
                    .texts = absl::StrCat(source.jinja, "\n", source.tool_use),
                    .conversation = std::move(conversation),
                    .tool_use = std::nullopt,
                    .tokens = {}};
  if (!IsBlank(source.tool_use)) {
    ASSIGN_OR_RETURN(programs.tool_use, ParseNamed("chat_template tool_use", source.tool_use));
  }
  programs.tokens = {{"bos_token", Value::Own(source.bos_token)},
                     {"eos_token", Value::Own(source.eos_token)}};
  for (const auto& [name, token] : source.other_tokens) {
    programs.tokens.emplace_back(name, Value::Own(token));
  }
  ChatTemplate result;
  result.programs_ = std::make_shared<const Programs>(std::move(programs));
  for (const char* role : {"system", "user", "assistant"}) {
    const JsonValue named = {{"role", role}, {"name", kProbe}, {"content", "Hi"}};
    if (!result.WritesProbe(named).value_or(true)) result.unnamed_roles_.emplace_back(role);
  }
  result.call_style_ = result.FindCallStyle();
  result.has_place_for_system_ =
      result.WritesProbe({{"role", "system"}, {"content", kProbe}}).value_or(false);
  if (is_plain) return result;
  // Find the text that the template writes after the answer at the end of a conversation.
  ChatInput probe = ChatInputOf({{"user", "Hi"}, {"assistant", kProbe}}, absl::UnixEpoch());
  probe.add_generation_prompt = false;
  const absl::StatusOr<std::vector<MarkedText>> parts = result.Render(probe);
  if (!parts.ok()) return result;
  for (const MarkedText& part : *parts) {
    if (part.text.find(kProbe) != std::string::npos) {
      result.answer_end_.clear();
    } else if (part.special == SpecialTokens::kParse) {
      result.answer_end_ += part.text;
    }
  }
  result.answer_end_.erase(0, jinja::LeadingSpace(result.answer_end_));
  return result;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view jinja, std::string_view bos_token,
                                                 std::string_view eos_token) {
  return Parse(Source{.jinja = std::string(jinja),
                      .tool_use = "",
                      .bos_token = std::string(bos_token),
                      .eos_token = std::string(eos_token)});
}

std::optional<CallStyle> ChatTemplate::FindCallStyle() const {
  JsonValue call = {{"id", "abcdefghi"}, {"type", "function"}};
  call["function"] = {
      {"name", kProbe}};  // a template may write only the name or only the arguments
  call["function"]["arguments"] = {{"text", kProbe}};
  JsonValue caller = {{"role", "assistant"}, {"content", ""}};
  caller["tool_calls"] = JsonValue::array({call});
  for (const bool has_text_arguments : {false, true}) {
    for (const bool replaces_content : {false, true}) {
      const CallStyle style{.replaces_content = replaces_content,
                            .has_text_arguments = has_text_arguments};
      const absl::StatusOr<JsonValue> styled = InCallStyle(caller, style);
      if (styled.ok() && WritesProbe(*styled) == true) return style;
    }
  }
  // If the template rejects every trial, assume that it writes calls in the usual style.
  if (WritesProbe(caller).has_value()) return std::nullopt;
  return CallStyle();
}

std::optional<bool> ChatTemplate::WritesProbe(const JsonValue& message) const {
  ChatInput probe;
  // Only the tool_use template may write calls.
  if (message.contains("tool_calls") && programs_->tool_use.has_value()) {
    probe.tools = JsonValue::array();
  }
  if (!IsText(message.at("role"), "user")) {
    probe.messages.push_back({{"role", "user"}, {"content", "Hi"}});
  }
  // A system message comes first, an answer last.
  const bool is_answer = IsText(message.at("role"), "assistant");
  probe.messages.insert(is_answer ? probe.messages.end() : probe.messages.begin(), message);
  probe.add_generation_prompt = !is_answer;
  const absl::StatusOr<std::vector<MarkedText>> parts = Render(probe, {.steps = 1'000'000});
  if (!parts.ok()) return std::nullopt;
  return std::any_of(parts->begin(), parts->end(), [](const MarkedText& part) {
    return part.text.find(kProbe) != std::string::npos;
  });
}

bool ChatTemplate::WritesNameOf(std::string_view role) const {
  return std::find(unnamed_roles_.begin(), unnamed_roles_.end(), role) == unnamed_roles_.end();
}

bool ChatTemplate::is_plain() const { return programs_->is_plain; }

bool ChatTemplate::Mentions(std::string_view text) const {
  return absl::StrContains(programs_->texts, View(text));
}

bool ChatTemplate::HasPlaceForTools() const {
  return programs_->tool_use.has_value() || Mentions("tools");
}

std::string_view ChatTemplate::name() const { return is_plain() ? "plain" : "jinja"; }

absl::StatusOr<std::vector<MarkedText>> ChatTemplate::Render(const ChatInput& input) const {
  return Render(input, jinja::Limits());
}

absl::StatusOr<std::vector<MarkedText>> ChatTemplate::Render(const ChatInput& input,
                                                             const jinja::Limits& limits) const {
  RETURN_IF_ERROR(CheckMessages(input));
  ASSIGN_OR_RETURN(const jinja::Template::Variables variables,
                   VariablesOf(input, programs_->tokens));
  const bool is_tool_use = !input.tools.is_null() && programs_->tool_use.has_value();
  const jinja::Template& program = is_tool_use ? *programs_->tool_use : programs_->conversation;
  absl::StatusOr<Prompt> text = program.Render(variables, input.now, limits);
  if (!text.ok()) {
    return FieldError("messages",
                      absl::StrCat("the chat template failed: ", OneLine(text.status().message())));
  }
  if (input.continue_final_message) {
    ASSIGN_OR_RETURN(text, CutAtContinuation(*text));
  }
  std::vector<MarkedText> parts;
  size_t begin = 0;
  for (const Prompt::Run& run : text->runs()) {
    parts.push_back({text->text().substr(begin, run.end - begin), run.special});
    begin = run.end;
  }
  return parts;
}

absl::StatusOr<JsonValue> InCallStyle(const JsonValue& message, const CallStyle& style) {
  JsonValue restyled = message;
  if (!restyled.contains("tool_calls")) return restyled;
  if (style.replaces_content && IsText(restyled["content"], "")) restyled["content"] = nullptr;
  if (!style.has_text_arguments || !restyled["tool_calls"].is_array()) return restyled;
  for (JsonValue& call : restyled["tool_calls"]) {
    const bool has_arguments = call.is_object() && call.contains("function") &&
                               call["function"].is_object() &&
                               call["function"].contains("arguments");
    if (!has_arguments) continue;
    JsonValue& arguments = call["function"]["arguments"];
    if (arguments.is_string()) continue;
    ASSIGN_OR_RETURN(arguments, jinja::JsonText(arguments));
  }
  return restyled;
}

ChatInput ChatInputOf(absl::Span<const ChatMessage> messages, absl::Time now) {
  ChatInput input;
  input.now = now;
  for (const ChatMessage& message : messages) {
    input.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  return input;
}

absl::StatusOr<std::vector<TokenId>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer,
                                                const ChatInput& input) {
  ASSIGN_OR_RETURN(const std::vector<MarkedText> parts, RenderChat(chat, input));
  absl::StatusOr<std::vector<TokenId>> ids = tokenizer.EncodeMarked(parts);
  if (!ids.ok()) return WithField(ids.status(), "messages");
  // Templates write the first token themselves.
  if (chat.is_plain()) ids = tokenizer.WithTemplate(*std::move(ids));
  if (ids->empty()) return FieldError("messages", "are empty");
  return ids;
}

std::vector<TokenId> EndTokenIds(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const absl::StatusOr<std::vector<TokenId>> ids =
      tokenizer.Encode(chat.answer_end(), SpecialTokens::kParse);
  if (!ids.ok() || ids->empty()) return {};
  const TokenId first = ids->front();
  if (tokenizer.IsSpecial(first)) return {first};
  // Tokens like <|im_end|> end answers even if the tokenizer's file does not mark them as special.
  const auto text = tokenizer.TextOf(first, /*is_first=*/true);
  const bool looks_special = text.has_value() && text->bytes.size() > 3 &&
                             text->bytes.front() == '<' && text->bytes.back() == '>';
  return looks_special ? std::vector<TokenId>{first} : std::vector<TokenId>();
}

}  // namespace tandem
