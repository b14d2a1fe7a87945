#include "tandem/generic_tools.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/chat/jinja/value_text.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Hermes' wording: most models have seen it, even those that were trained on other formats.
constexpr char kBeforeFunctions[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr char kAfterFunctions[] =
    "\n</tools>\n\nFor each function call, return a JSON object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

bool HasCalls(const Json& message) {
  return message.is_object() && message.contains("tool_calls") &&
         message["tool_calls"].is_array() && !message["tool_calls"].empty();
}

bool HasRole(const Json& message, absl::string_view role) {
  return message.is_object() && message.contains("role") && IsText(message["role"], role);
}

bool HasFunctions(const ChatInput& input) { return !input.tools.is_null() && !input.tools.empty(); }

using jinja::JsonText;

absl::StatusOr<std::string> TextOfFunctions(const Json& tools) {
  std::string text = kBeforeFunctions;
  for (const Json& tool : tools) {
    const absl::StatusOr<std::string> function = JsonText(tool);
    if (!function.ok()) return FieldError("tools", function.status().message());
    absl::StrAppend(&text, "\n", *function);
  }
  return text + kAfterFunctions;
}

// Rewrites the messages of one conversation.
class GenericMessages {
 public:
  absl::Status Add(const Json& message, const std::string& field) {
    field_ = field;
    if (HasRole(message, "tool")) return AddResult(message);
    if (HasCalls(message)) return AddCalls(message);
    const bool goes_on = ends_in_results_ && HasRole(message, "user");
    ends_in_results_ = false;
    if (!goes_on) {
      messages_.push_back(message);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::string content, ContentOf(message));
    Append("\n" + content);
    return absl::OkStatus();
  }

  // Adds the functions to the system message or the first user message, or inserts such a message.
  absl::Status AddFunctions(const std::string& text, bool has_system_place) {
    const char* const role = has_system_place ? "system" : "user";
    const auto it = absl::c_find_if(messages_, [&](const Json& m) { return HasRole(m, role); });
    const bool is_found =
        has_system_place ? it == messages_.begin() && it != messages_.end() : it != messages_.end();
    if (!is_found) {
      messages_.insert(messages_.begin(), Json{{"role", role}, {"content", text}});
      return absl::OkStatus();
    }
    field_ = absl::StrCat("messages[", it - messages_.begin(), "]");
    ASSIGN_OR_RETURN(const std::string content, ContentOf(*it));
    (*it)["content"] = has_system_place ? absl::StrCat(content, "\n\n", text)
                                        : absl::StrCat(text, "\n\n", content);
    return absl::OkStatus();
  }

  Json Take() { return Json(std::move(messages_)); }

 private:
  absl::StatusOr<std::string> ContentOf(const Json& message) const {
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) return "";
    if (content->is_string()) return content->get<std::string>();
    return FieldError(absl::StrCat(field_, ".content"), "is not a string");
  }

  void Append(const std::string& text) {
    Json& content = messages_.back()["content"];
    content = content.get<std::string>() + text;
  }

  absl::Status AddCalls(const Json& message) {
    ASSIGN_OR_RETURN(std::string text, ContentOf(message));
    for (const Json& call : message["tool_calls"]) {
      const bool has_name = call.is_object() && call.contains("function") &&
                            call["function"].is_object() && call["function"].contains("name") &&
                            call["function"]["name"].is_string();
      if (!has_name) {
        return FieldError(absl::StrCat(field_, ".tool_calls"), "has a call without function.name");
      }
      const Json& function = call["function"];
      ASSIGN_OR_RETURN(const std::string name, JsonText(function["name"]));
      std::string arguments = "{}";
      if (function.contains("arguments") && function["arguments"].is_string()) {
        arguments = function["arguments"].get<std::string>();
      } else if (function.contains("arguments")) {
        ASSIGN_OR_RETURN(arguments, JsonText(function["arguments"]));
      }
      absl::StrAppend(&text, text.empty() ? "" : "\n", "<tool_call>\n{\"name\": ", name,
                      ", \"arguments\": ", arguments, "}\n</tool_call>");
      if (call.contains("id")) called_.emplace_back(call["id"], function["name"]);
    }
    Json said = message;
    said.erase("tool_calls");
    said["content"] = std::move(text);
    messages_.push_back(std::move(said));
    ends_in_results_ = false;
    return absl::OkStatus();
  }

  absl::Status AddResult(const Json& message) {
    ASSIGN_OR_RETURN(const std::string content, ContentOf(message));
    Json result = Json::object();
    if (const Json name = NameOf(message); !name.is_null()) result["name"] = name;
    result["content"] = content;
    ASSIGN_OR_RETURN(const std::string json, JsonText(result));
    const std::string text = absl::StrCat("<tool_response>\n", json, "\n</tool_response>");
    if (ends_in_results_) {
      Append("\n" + text);
    } else {
      messages_.push_back({{"role", "user"}, {"content", text}});
    }
    ends_in_results_ = true;
    return absl::OkStatus();
  }

  // Returns the name of the function whose result the message is; null if it is unknown.
  Json NameOf(const Json& message) const {
    if (message.contains("name")) return message["name"];
    if (!message.contains("tool_call_id")) return nullptr;
    for (auto it = called_.rbegin(); it != called_.rend(); ++it) {
      if (it->first == message["tool_call_id"]) return it->second;
    }
    return nullptr;
  }

  std::vector<Json> messages_;
  std::vector<std::pair<Json, Json>> called_;  // ids and names
  bool ends_in_results_ = false;
  std::string field_;  // the message being read, for errors
};

}  // namespace

bool NeedsGenericTools(const ChatTemplate& chat, const ChatInput& input) {
  if (chat.HasPlaceForTools()) return false;
  if (HasFunctions(input)) return true;
  return !chat.call_style().has_value() && absl::c_any_of(input.messages, [](const Json& message) {
    return HasCalls(message) || HasRole(message, "tool");
  });
}

absl::StatusOr<ChatInput> WithGenericTools(const ChatTemplate& chat, const ChatInput& input) {
  GenericMessages messages;
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const std::string field = absl::StrCat("messages[", i, "]");
    const absl::Status status = messages.Add(input.messages[i], field);
    if (!status.ok()) return FieldOf(status).empty() ? FieldError(field, status.message()) : status;
  }
  ChatInput generic = input;
  if (HasFunctions(input)) {
    ASSIGN_OR_RETURN(const std::string text, TextOfFunctions(input.tools));
    RETURN_IF_ERROR(messages.AddFunctions(text, chat.HasPlaceForSystem()));
  }
  generic.messages = messages.Take();
  generic.tools = nullptr;
  return generic;
}

namespace {

absl::StatusOr<std::vector<MarkedText>> RenderInItsStyle(const ChatTemplate& chat,
                                                         const ChatInput& input) {
  if (NeedsGenericTools(chat, input)) {
    ASSIGN_OR_RETURN(const ChatInput generic, WithGenericTools(chat, input));
    return chat.Render(generic);
  }
  if (!chat.call_style().has_value() || absl::c_none_of(input.messages, HasCalls)) {
    return chat.Render(input);
  }
  ChatInput styled = input;
  for (Json& message : styled.messages) {
    if (!HasCalls(message)) continue;
    absl::StatusOr<Json> restyled = InCallStyle(message, *chat.call_style());
    if (!restyled.ok()) return FieldError("messages", restyled.status().message());
    message = *std::move(restyled);
  }
  return chat.Render(styled);
}

// Gives the calls whose arguments are not an object empty ones. Returns the error of the first of
// them; OK if there is none.
absl::Status EmptyOtherArguments(ChatInput* input) {
  absl::Status first;
  for (size_t i = 0; i < input->messages.size(); ++i) {
    if (!HasCalls(input->messages[i])) continue;
    Json& calls = input->messages[i]["tool_calls"];
    for (size_t j = 0; j < calls.size(); ++j) {
      const bool has_function =
          calls[j].is_object() && calls[j].contains("function") && calls[j]["function"].is_object();
      Json* const function = has_function ? &calls[j]["function"] : nullptr;
      if (function == nullptr || !function->contains("arguments")) continue;
      Json& arguments = (*function)["arguments"];
      if (arguments.is_object()) continue;
      first.Update(FieldError(
          absl::StrCat("messages[", i, "].tool_calls[", j, "].function.arguments"),
          absl::StrCat(Shown(arguments), " is not a JSON object, which the chat template needs")));
      arguments = Json::object();
    }
  }
  return first;
}

}  // namespace

absl::StatusOr<std::vector<MarkedText>> RenderChat(const ChatTemplate& chat,
                                                   const ChatInput& input) {
  absl::StatusOr<std::vector<MarkedText>> text = RenderInItsStyle(chat, input);
  if (text.ok()) return text;
  ChatInput emptied = input;
  const absl::Status refusal = EmptyOtherArguments(&emptied);
  if (!refusal.ok() && RenderInItsStyle(chat, emptied).ok()) return refusal;
  return text;
}

}  // namespace tandem
