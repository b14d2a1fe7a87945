#include "server/api/chat_fields.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/chat_template.h"
#include "tandem/field_error.h"
#include "tandem/generic_tools.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr char kContentKinds[] = "a string or a list of text parts";

// Returns `read` with its members in the order that `said` has; those that `said` lacks come last.
Json InOrderOf(const Json& said, Json read) {
  if (!said.is_object()) return read;
  Json ordered = Json::object();
  auto& members = ordered.get_ref<Json::object_t&>();
  members.reserve(read.size());
  for (const auto& [name, value] : said.items()) {
    if (const auto it = read.find(name); it != read.end()) {
      members.emplace_back(name, std::move(*it));
      read.erase(it);
    }
  }
  for (auto& [name, value] : read.get_ref<Json::object_t&>()) {
    members.emplace_back(name, std::move(value));
  }
  return ordered;
}

void ReadToolCalls(RequestFields* fields, Json* message) {
  const Json* list = fields->Find("tool_calls");
  if (list == nullptr || *list == Json::array()) return;
  if (!list->is_array()) return fields->FailNot("tool_calls", *list, "a list of calls");
  Json& calls = (*message)["tool_calls"];
  for (size_t i = 0; i < list->size(); ++i) {
    RequestFields call(&(*list)[i], fields->PathOf(absl::StrCat("tool_calls[", i, "]")),
                       fields->ignored());
    std::string id;
    std::string type = "function";
    call.Read("id", &id);
    call.Read("type", &type);
    if (type != "function") call.FailNot("type", type, "function");
    call.Ignore("index");  // of streamed answers that a client has joined
    const Json* function = call.Find("function");
    if (function == nullptr) {
      call.FailNot("function", nullptr, "an object with name and arguments");
    } else {
      RequestFields inner(function, call.PathOf("function"), call.ignored());
      Json read = {{"id", id}, {"type", type}};
      read["function"] = InOrderOf(*function, ReadFunctionCall(&inner));
      calls.push_back(InOrderOf((*list)[i], std::move(read)));
      call.Fail(inner.Finish());
    }
    fields->Fail(call.Finish());
  }
}

void ReadMessages(RequestFields* fields, Json* messages) {
  const Json* list = fields->Find("messages");
  if (list == nullptr) return;
  if (!list->is_array() || list->empty()) {
    return fields->FailNot("messages", *list, "a list of messages");
  }
  for (size_t i = 0; i < list->size() && fields->ok(); ++i) {
    ReadMessage((*list)[i], absl::StrCat("messages[", i, "]"), fields, messages);
  }
}

}  // namespace

Json ReadFunctionCall(RequestFields* function) {
  std::string name;
  function->Read("name", &name);
  if (function->ok() && name.empty()) function->FailNot("name", name, "the name of a function");
  Json arguments = Json::object();
  if (const Json* given = function->Find("arguments"); given != nullptr && given->is_object()) {
    arguments = *given;
  } else if (given != nullptr && !given->is_string()) {
    function->FailNot("arguments", *given, "a string of JSON");
  } else if (given != nullptr && !IsText(*given, "")) {
    absl::StatusOr<Json> parsed = ParseJsonValue(given->get_ref<const std::string&>(), "arguments");
    arguments = parsed.ok() ? *std::move(parsed) : *given;
  }
  Json read = {{"name", name}};
  read["arguments"] = std::move(arguments);
  return read;
}

std::string ReadContent(RequestFields* fields, bool may_lack, const std::string& name) {
  const Json* content = fields->Find(name);
  if (content == nullptr) {
    if (!may_lack) fields->FailNot(name, nullptr, kContentKinds);
    return "";
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    fields->FailNot(name, *content, kContentKinds);
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    RequestFields part(&(*content)[i], fields->PathOf(absl::StrCat(name, "[", i, "]")),
                       fields->ignored());
    std::string type;
    part.Read("type", &type);
    const bool is_text = type == "text" || type == "input_text" || type == "output_text";
    if (part.ok() && !is_text)
      part.FailNot("type", type, "text; parts of other types are not supported");
    std::string words;
    part.Read("text", &words);
    text += words;
    for (const char* of_answers : {"annotations", "logprobs"}) part.Ignore(of_answers);
    fields->Fail(part.Finish());
  }
  return text;
}

void ReadMessage(const Json& object, const std::string& path, RequestFields* parent,
                 Json* messages) {
  RequestFields fields(&object, path, parent->ignored());
  std::string role;
  fields.Read("role", &role);
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    fields.FailNot("role", role, "one of system, developer, user, assistant, tool");
  }
  Json message = Json::object();
  message.get_ref<Json::object_t&>().reserve(6);  // a later growth would copy the contents
  message["role"] = role;
  ReadToolCalls(&fields, &message);
  const bool calls_tools = message.contains("tool_calls");
  if (calls_tools && role != "assistant") {
    fields.FailNot("tool_calls", message["tool_calls"],
                   "possible: only assistants' messages have tool calls");
  }
  // An answer that consists of reasoning or calls has no content.
  const bool reasons = role == "assistant" && (fields.Find("reasoning_content") != nullptr ||
                                               fields.Find("reasoning") != nullptr);
  message["content"] = ReadContent(&fields, /*may_lack=*/calls_tools || reasons);
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    std::string text;
    fields.Read(name, &text);
    if (!text.empty()) message[name] = std::move(text);
  }
  fields.AllowOnly("annotations", {Json::array()});
  for (const char* name : {"refusal", "function_call", "audio"}) fields.AllowOnly(name, {});
  for (const char* name : {"images", "tools"}) fields.AllowOnly(name, {Json::array()});
  fields.AllowOnly("tool_name", {}, "name");
  fields.AllowOnly("thinking", {}, "reasoning_content");
  parent->Fail(fields.Finish());
  messages->push_back(InOrderOf(object, std::move(message)));
}

void ReadTemplateVariables(RequestFields* fields, ChatInput* chat) {
  if (const Json* kwargs = fields->Find("chat_template_kwargs"); kwargs != nullptr) {
    if (kwargs->is_object()) {
      chat->kwargs = *kwargs;
    } else {
      fields->FailNot("chat_template_kwargs", *kwargs, "an object of template variables");
    }
  }
}

void ReadChatInput(RequestFields* fields, ChatInput* chat) {
  ReadMessages(fields, &chat->messages);
  ReadTemplateVariables(fields, chat);
  std::string effort;
  fields->Read("reasoning_effort", &effort);
  if (!effort.empty()) chat->kwargs["reasoning_effort"] = effort;
  // By default, a message that is continued is not followed by a generation prompt.
  fields->Read("continue_final_message", &chat->continue_final_message);
  bool adds = !chat->continue_final_message;
  fields->Read("add_generation_prompt", &adds);
  chat->add_generation_prompt = adds;
  if (adds && chat->continue_final_message) {
    fields->FailNot("add_generation_prompt", true, "possible with continue_final_message");
  }
}

void IgnoreUnwrittenNames(const std::string& field, const ServedModel& model,
                          RequestFields* fields) {
  const Json* list = fields->Find(field);
  if (list == nullptr || !list->is_array() || !model.chat_template.ok()) return;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& message = (*list)[i];
    const bool has_name = message.is_object() && message.contains("name") &&
                          message["name"].is_string() && !IsText(message["name"], "") &&
                          message.contains("role") && message["role"].is_string();
    if (!has_name) continue;
    const bool is_developer = IsText(message["role"], "developer");
    const std::string role = is_developer ? "system" : message["role"].get<std::string>();
    if (model.chat_template->WritesNameOf(role)) continue;
    fields->TreatAsUnknown(absl::StrCat(field, "[", i, "].name"),
                           "the model's chat template has no place for it");
  }
}

bool HasGenericTools(const ChatInput& chat, const ServedModel& model) {
  return model.chat_template.ok() && NeedsGenericTools(*model.chat_template, chat);
}

absl::StatusOr<std::vector<TokenId>> EncodeChatInput(const ChatInput& chat,
                                                     const ServedModel& model) {
  if (chat.messages.empty()) return MissingField("messages", "a list of messages");
  if (!model.chat_template.ok()) {
    return FieldError("messages",
                      absl::StrCat("the model has no chat template that this server can use: ",
                                   model.chat_template.status().message()));
  }
  const bool writes_calls =
      model.chat_template->call_style().has_value() || HasGenericTools(chat, model);
  for (size_t i = 0; i < chat.messages.size() && !writes_calls; ++i) {
    if (!chat.messages[i].contains("tool_calls")) continue;
    return FieldError(absl::StrCat("messages[", i, "].tool_calls"),
                      "the model's chat template has no place for them");
  }
  return EncodeChat(*model.chat_template, *model.tokenizer, chat);
}

void AddEndTokens(const ServedModel& model, Request* options) {
  if (options->ignore_eos || !model.chat_template.ok()) return;
  const std::vector<TokenId> ends = EndTokenIds(*model.chat_template, *model.tokenizer);
  options->stop_tokens.insert(options->stop_tokens.end(), ends.begin(), ends.end());
}

std::string EchoOf(const ChatInput& chat) {
  const Json& last = chat.messages.back();
  return IsText(last["role"], "assistant") ? last["content"].get<std::string>() : std::string();
}

}  // namespace tandem
