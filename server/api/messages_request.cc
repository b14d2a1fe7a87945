// POST /v1/messages: Anthropic's Messages API. A request becomes the same chat in OpenAI's form.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/status_macros.h"
#include "server/api/api_request.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tandem/sampling_params.h"

namespace tandem {
namespace {

using Json = JsonValue;
// The names of a chat's fields, and those of the message's fields that they were made of.
using Names = std::vector<std::pair<std::string, std::string>>;

constexpr char kBlockKinds[] = "a string or a list of blocks";

// Appends `text`, on a line of its own.
void AppendLine(const std::string& text, std::string* to) {
  if (!to->empty() && !text.empty()) *to += '\n';
  *to += text;
}

// Reads the messages of a conversation. Messages that follow one of the same role continue it.
class MessageReader {
 public:
  // Errors are remembered by `fields`.
  MessageReader(RequestFields* fields, Json* messages, Names* names)
      : fields_(fields), messages_(messages), names_(names) {}

  // Reads "system", a string or text blocks.
  void ReadSystem() {
    std::string text;
    ReadBlocks(fields_, "system", /*may_lack=*/true,
               [&](RequestFields* block, const std::string& type) {
                 if (type == "text") return AppendLine(TextOf(block), &text);
                 block->FailNot("type", type, "text");
               });
    if (!text.empty()) Add("system", "system")["content"] = text;
  }

  void Read(const Json& object, const std::string& path) {
    RequestFields fields(&object, path, fields_->ignored());
    std::string role;
    fields.Read("role", &role);
    if (role == "user") {
      ReadUser(&fields, path);
    } else if (role == "assistant") {
      ReadAssistant(&fields, path);
    } else if (fields.ok()) {
      fields.FailNot("role", role, "one of user, assistant");
    }
    fields_->Fail(fields.Finish());
  }

 private:
  // Calls read(block, type) for each block of the field `name`; a string counts as a text block.
  template <typename ReadBlock>
  static void ReadBlocks(RequestFields* fields, const std::string& name, bool may_lack,
                         const ReadBlock& read) {
    const Json* content = fields->Find(name);
    if (content == nullptr) {
      if (!may_lack) fields->FailNot(name, nullptr, kBlockKinds);
      return;
    }
    if (content->is_string()) {
      const Json text = {{"type", "text"}, {"text", *content}};
      RequestFields block(&text, fields->PathOf(name));
      return read(&block, "text");
    }
    if (!content->is_array()) return fields->FailNot(name, *content, kBlockKinds);
    for (size_t i = 0; i < content->size(); ++i) {
      RequestFields block(&(*content)[i], fields->PathOf(absl::StrCat(name, "[", i, "]")),
                          fields->ignored());
      std::string type;
      block.Read("type", &type);
      block.Ignore("cache_control");  // every prefix is cached
      if (block.ok()) read(&block, type);
      fields->Fail(block.Finish());
    }
  }

  static std::string TextOf(RequestFields* block) {
    std::string text;
    if (block->Find("text") == nullptr) block->FailNot("text", nullptr, "a string");
    block->Read("text", &text);
    block->Ignore("citations");
    return text;
  }

  static void RefuseType(RequestFields* block, const std::string& type, const char* allowed) {
    block->FailNot("type", type, absl::StrCat("supported, allowed: ", allowed));
  }

  Json& Add(const char* role, const std::string& path) {
    names_->emplace_back(absl::StrCat("messages[", messages_->size(), "]"), path);
    messages_->push_back({{"role", role}, {"content", ""}});
    return messages_->back();
  }
  // Returns the last message if it has this role, else a new one.
  Json& LastOf(const char* role, const std::string& path) {
    const bool goes_on = !messages_->empty() && IsText(messages_->back()["role"], role);
    return goes_on ? messages_->back() : Add(role, path);
  }
  static void AppendContent(const std::string& text, bool as_line, Json* message) {
    std::string content = (*message)["content"].get<std::string>();
    as_line ? AppendLine(text, &content) : static_cast<void>(content += text);
    (*message)["content"] = std::move(content);
  }

  void ReadUser(RequestFields* fields, const std::string& path) {
    ReadBlocks(fields, "content", /*may_lack=*/false,
               [&](RequestFields* block, const std::string& type) {
                 if (type == "text") {
                   AppendContent(TextOf(block), /*as_line=*/true, &LastOf("user", path));
                 } else if (type == "tool_result") {
                   ReadResult(block, path);
                 } else {
                   RefuseType(block, type, "text, tool_result");
                 }
               });
  }

  void ReadResult(RequestFields* block, const std::string& path) {
    std::string id;
    block->Read("tool_use_id", &id);
    const auto name = called_.find(id);
    if (name == called_.end()) {
      return block->FailNot("tool_use_id", id, "the id of a tool_use block before it");
    }
    for (const char* unused : {"is_error", "toolset_name"}) block->Ignore(unused);
    std::string text;
    ReadBlocks(block, "content", /*may_lack=*/true,
               [&](RequestFields* part, const std::string& type) {
                 if (type == "text") return AppendLine(TextOf(part), &text);
                 RefuseType(part, type, "text");
               });
    Json& message = Add("tool", path);
    message["tool_call_id"] = id;
    message["name"] = name->second;
    message["content"] = std::move(text);
  }

  // The parts of an assistant's turn: reasoning first, then text and calls.
  void ReadAssistant(RequestFields* fields, const std::string& path) {
    Json& message = LastOf("assistant", path);
    ReadBlocks(fields, "content", /*may_lack=*/false,
               [&](RequestFields* block, const std::string& type) {
                 if (type == "text") {
                   AppendContent(TextOf(block), /*as_line=*/false, &message);
                 } else if (type == "thinking") {
                   std::string text;
                   block->Read("thinking", &text);
                   block->Ignore("signature");
                   if (!text.empty()) message["reasoning_content"] = std::move(text);
                 } else if (type == "redacted_thinking") {
                   block->Ignore("data");
                 } else if (type == "tool_use") {
                   ReadCall(block, &message);
                 } else {
                   RefuseType(block, type, "text, thinking, redacted_thinking, tool_use");
                 }
               });
  }

  void ReadCall(RequestFields* block, Json* message) {
    std::string id;
    std::string name;
    block->Read("id", &id);
    block->Read("name", &name);
    for (const char* unused : {"caller", "toolset_name"}) block->Ignore(unused);
    if (block->ok() && name.empty()) block->FailNot("name", name, "the name of a tool");
    const Json* input = block->Find("input");
    if (input == nullptr || !input->is_object()) {
      return block->FailNot("input", input == nullptr ? Json() : *input, "an object");
    }
    called_[id] = name;
    Json function = {{"name", name}};
    function["arguments"] = *input;
    Json call = {{"id", id}, {"type", "function"}};
    call["function"] = std::move(function);
    (*message)["tool_calls"].push_back(std::move(call));
  }

  RequestFields* fields_;
  Json* messages_;
  Names* names_;
  std::map<std::string, std::string> called_;  // names of the tools called, by id
};

void ReadMessages(RequestFields* fields, Json* chat, Names* names) {
  Json& messages = (*chat)["messages"] = Json::array();
  MessageReader reader(fields, &messages, names);
  reader.ReadSystem();
  const Json* list = fields->Find("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return fields->FailNot("messages", list == nullptr ? Json() : *list, "a list of messages");
  }
  for (size_t i = 0; i < list->size() && fields->ok(); ++i) {
    reader.Read((*list)[i], absl::StrCat("messages[", i, "]"));
  }
  // The answer continues the assistant's message.
  const Json& last = messages.empty() ? *list : messages.back();
  if (fields->ok() && IsText(last["role"], "assistant") && !last.contains("tool_calls")) {
    (*chat)["continue_final_message"] = true;
  }
}

void ReadTools(RequestFields* fields, Json* chat, Names* names) {
  const Json* list = fields->Find("tools");
  if (list == nullptr || *list == Json::array()) return;
  if (!list->is_array()) return fields->FailNot("tools", *list, "a list of tools");
  Json& tools = (*chat)["tools"] = Json::array();
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    RequestFields tool(&(*list)[i], path, fields->ignored());
    std::string type = "custom";
    tool.Read("type", &type);
    if (tool.ok() && type != "custom") tool.FailNot("type", type, "custom");
    tool.Ignore("cache_control");
    for (const char* name : {"eager_input_streaming", "input_examples"}) tool.Ignore(name);
    tool.AllowOnly("defer_loading", {false});
    Json function = Json::object();
    for (const auto& [theirs, ours] :
         {std::pair("name", "name"), std::pair("description", "description"),
          std::pair("input_schema", "parameters"), std::pair("strict", "strict")}) {
      const Json* value = tool.Find(theirs);
      if (value != nullptr) function[ours] = *value;
      names->emplace_back(absl::StrCat(path, ".function.", ours), absl::StrCat(path, ".", theirs));
    }
    names->emplace_back(absl::StrCat(path, ".function"), path);
    Json nested = {{"type", "function"}};
    nested["function"] = std::move(function);
    tools.push_back(std::move(nested));
    fields->Fail(tool.Finish());
  }
}

void ReadToolChoice(RequestFields* fields, Json* chat, Names* names) {
  const Json* object = fields->Find("tool_choice");
  if (object == nullptr) return;
  RequestFields choice(object, "tool_choice", fields->ignored());
  std::string type;
  std::string name;
  bool is_single = false;
  choice.Read("type", &type);
  choice.Read("name", &name);
  choice.Read("disable_parallel_tool_use", &is_single);
  Json& said = (*chat)["tool_choice"] = "auto";
  if (type == "any") {
    said = "required";
  } else if (type == "none") {
    said = "none";
  } else if (type == "tool") {
    said = {{"type", "function"}};
    said["function"]["name"] = name;
    names->emplace_back("tool_choice.function.name", "tool_choice.name");
  } else if (type != "auto" && choice.ok()) {
    choice.FailNot("type", type, "one of auto, any, tool, none");
  }
  (*chat)["parallel_tool_calls"] = !is_single;
  fields->Fail(choice.Finish());
}

// Reads {"type": "enabled", "budget_tokens": 1024}, or the types "disabled" and "adaptive".
void ReadThinking(RequestFields* fields, const ServedModel& model, Json* chat, Names* names) {
  const Json* object = fields->Find("thinking");
  if (object == nullptr) return;
  RequestFields thinking(object, "thinking", fields->ignored());
  std::string type;
  std::string display = "summarized";
  std::optional<int> budget;
  thinking.Read("type", &type);
  thinking.Read("display", &display);
  thinking.Read("budget_tokens", &budget, {.low = 0});
  if (thinking.ok() && type != "enabled" && type != "disabled" && type != "adaptive") {
    thinking.FailNot("type", type, "one of enabled, disabled, adaptive");
  }
  if (thinking.ok() && display != "summarized" && display != "omitted") {
    thinking.FailNot("display", display, "one of summarized, omitted");
  }
  if (thinking.ok() && type == "enabled" && !budget.has_value()) {
    thinking.FailNot("budget_tokens", nullptr, "at least 0");
  }
  Json& variables = (*chat)["chat_template_kwargs"];
  if (variables.is_null()) variables = Json::object();
  if (type != "adaptive" && variables.is_object() && !variables.contains("enable_thinking")) {
    variables["enable_thinking"] = type == "enabled";
  }
  if (type == "enabled") {
    (*chat)["max_thinking_tokens"] = budget.value_or(0);
    names->emplace_back("max_thinking_tokens", "thinking.budget_tokens");
  } else if (type == "disabled" && model.reasoning.has_value()) {
    (*chat)["max_thinking_tokens"] = 0;
  }
  if (display == "omitted") (*chat)["include_reasoning"] = false;
  fields->Fail(thinking.Finish());
}

// Reads {"effort": "low", "format": {"type": "json_schema", "schema": {...}}}.
void ReadOutputConfig(RequestFields* fields, Json* chat, Names* names) {
  const Json* object = fields->Find("output_config");
  if (object == nullptr) return;
  RequestFields config(object, "output_config", fields->ignored());
  std::string effort;
  config.Read("effort", &effort);
  if (!effort.empty()) (*chat)["reasoning_effort"] = effort;
  if (const Json* given = config.Find("format"); given != nullptr) {
    RequestFields format(given, "output_config.format", fields->ignored());
    std::string type;
    format.Read("type", &type);
    if (format.ok() && type != "json_schema") format.FailNot("type", type, "json_schema");
    const Json* schema = format.Find("schema");
    if (schema == nullptr) format.FailNot("schema", nullptr, "a JSON schema");
    Json& form = (*chat)["response_format"] = {{"type", "json_schema"}};
    form["json_schema"] = {{"name", "answer"}};
    if (schema != nullptr) form["json_schema"]["schema"] = *schema;
    names->emplace_back("response_format.json_schema.schema", "output_config.format.schema");
    names->emplace_back("response_format", "output_config.format");
    config.Fail(format.Finish());
  }
  fields->Fail(config.Finish());
}

void ReadStopSequences(RequestFields* fields, Json* chat, Names* names) {
  const Json* stops = fields->Find("stop_sequences");
  if (stops == nullptr) return;
  if (!stops->is_array()) return fields->FailNot("stop_sequences", *stops, "a list of strings");
  (*chat)["stop"] = *stops;
  names->emplace_back("stop", "stop_sequences");
}

// Copies the fields that chats have by the same name.
void CopyCommonFields(RequestFields* fields, Json* chat) {
  const auto copy = [&](const char* name) {
    if (const Json* value = fields->Find(name)) (*chat)[name] = *value;
  };
  VisitSamplingParams(
      [&](const Parameter& parameter, auto, const Limits&) { copy(parameter.name); });
  for (const char* name :
       {"model", "stream", "max_tokens", "seed", "logit_bias", "stop_token_ids", "ignore_eos",
        "speculation", "cache_salt", "kv_transfer_params", "prediction", "chat_template_kwargs",
        "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "truncate_prompt_tokens"}) {
    copy(name);
  }
}

absl::StatusOr<ApiRequest> ParseMessages(absl::string_view body, const ServedModel& model,
                                         absl::Time now, bool only_counts) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  ApiRequest request;
  request.is_message = true;
  RequestFields fields(&json, "", model.is_strict ? nullptr : &request.ignored);
  Json chat = Json::object();
  Names names;
  CopyCommonFields(&fields, &chat);
  ReadMessages(&fields, &chat, &names);
  ReadTools(&fields, &chat, &names);
  ReadToolChoice(&fields, &chat, &names);
  ReadThinking(&fields, model, &chat, &names);
  ReadOutputConfig(&fields, &chat, &names);
  ReadStopSequences(&fields, &chat, &names);
  for (const char* name : {"metadata", "cache_control", "service_tier", "inference_geo", "speed",
                           "diagnostics", "user_profile_id", "workspace_id"}) {
    fields.Ignore(name);
  }
  fields.AllowOnly("container", {});
  fields.AllowOnly("mcp_servers", {Json::array()});
  if (!only_counts && !chat.contains("max_tokens")) {
    fields.FailNot("max_tokens", nullptr, "at least 1");
  }
  if (only_counts) chat.erase("max_tokens");
  RefuseFieldsOfOthers(kOnPrompt | kOnAnswer, &fields);
  RETURN_IF_ERROR(fields.Finish());
  ApiRequest named;
  named.field_names = names;
  request.field_names = std::move(names);
  auto parsed = ParseChatJson(chat, model, now, std::move(request));
  if (!parsed.ok()) return named.InFieldNames(parsed.status());
  return parsed;
}

}  // namespace

absl::StatusOr<ApiRequest> ParseMessagesRequest(absl::string_view body, const ServedModel& model,
                                                absl::Time now) {
  return ParseMessages(body, model, now, /*only_counts=*/false);
}

absl::StatusOr<ApiRequest> ParseCountTokensRequest(absl::string_view body, const ServedModel& model,
                                                   absl::Time now) {
  return ParseMessages(body, model, now, /*only_counts=*/true);
}

}  // namespace tandem
