// POST /v1/responses: text and function calls of OpenAI's Responses API. Nothing is stored.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/status_macros.h"
#include "server/api/api_request.h"
#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Returns the joined texts of a list of parts, which must all have this type.
std::string TextOfParts(RequestFields* fields, const char* name, const char* type) {
  const Json* list = fields->Find(name);
  if (list == nullptr) return "";
  if (!list->is_array()) {
    fields->FailNot(name, *list, "a list of parts");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < list->size(); ++i) {
    RequestFields part(&(*list)[i], fields->PathOf(absl::StrCat(name, "[", i, "]")),
                       fields->ignored());
    std::string found;
    part.Read("type", &found);
    if (part.ok() && found != type) part.FailNot("type", found, type);
    std::string words;
    part.Read("text", &words);
    text += words;
    fields->Fail(part.Finish());
  }
  return text;
}

// Converts the items of a Responses API conversation to messages. The reasoning, text and calls of
// one turn of the assistant are separate items, and become one message.
class ItemReader {
 public:
  // The names of fields of messages, and those that the items have for them.
  using Names = std::vector<std::pair<std::string, std::string>>;

  // Errors are remembered by `fields`.
  ItemReader(RequestFields* fields, Json* messages, Names* names)
      : fields_(fields), messages_(messages), names_(names) {}

  // Reads the next item: a message, or one of type function_call, function_call_output or
  // reasoning. `path` is its name in errors.
  void Read(const Json& item, const std::string& path) {
    const bool has_type = item.is_object() && item.contains("type") && !item["type"].is_null();
    if (!has_type || IsText(item["type"], "message")) return ReadMessageItem(item, path);
    RequestFields fields(&item, path, fields_->ignored());
    for (const char* name : {"id", "status"}) fields.Ignore(name);
    std::string type;
    fields.Read("type", &type);
    if (type == "function_call") {
      ReadCall(&fields);
    } else if (type == "function_call_output") {
      ReadOutput(&fields);
    } else if (type == "reasoning") {
      ReadReasoning(&fields);
    } else if (fields.ok()) {
      fields.FailNot("type", type,
                     "one of message, function_call, function_call_output, reasoning");
    }
    fields_->Fail(fields.Finish());
  }

  // Call after the last item.
  void Finish() { FlushReasoning(); }

 private:
  void ReadMessageItem(const Json& item, const std::string& path) {
    Json message = item;
    if (message.is_object()) {
      for (const char* name : {"type", "id", "status", "phase"}) message.erase(name);
    }
    const bool is_assistants =
        message.is_object() && message.contains("role") && IsText(message["role"], "assistant");
    std::string reasoning;
    is_assistants ? reasoning.swap(reasoning_) : FlushReasoning();
    ReadMessage(message, path, fields_, messages_);
    if (!reasoning.empty()) messages_->back()["reasoning_content"] = std::move(reasoning);
    is_in_turn_ = is_assistants;
  }

  // Begins a message of the assistant, with the pending reasoning.
  Json& BeginTurn() {
    messages_->push_back({{"role", "assistant"}, {"content", ""}});
    if (!reasoning_.empty()) {
      messages_->back()["reasoning_content"] = std::exchange(reasoning_, std::string());
    }
    is_in_turn_ = true;
    return messages_->back();
  }

  // Makes a message of reasoning that is not followed by other items of the turn.
  void FlushReasoning() {
    if (!reasoning_.empty()) BeginTurn();
    is_in_turn_ = false;
  }

  void ReadCall(RequestFields* item) {
    std::string id;
    item->Read("call_id", &id);
    Json& message = is_in_turn_ ? messages_->back() : BeginTurn();
    Json& calls = message["tool_calls"];
    names_->emplace_back(absl::StrCat("messages[", messages_->size() - 1, "].tool_calls[",
                                      calls.size(), "].function.arguments"),
                         item->PathOf("arguments"));
    calls.push_back({{"id", id}, {"type", "function"}, {"function", ReadFunctionCall(item)}});
  }

  void ReadOutput(RequestFields* item) {
    FlushReasoning();
    std::string id;
    item->Read("call_id", &id);
    messages_->push_back({{"role", "tool"},
                          {"content", ReadContent(item, /*may_lack=*/false, "output")},
                          {"tool_call_id", id}});
  }

  // Uses the reasoning text, or its summary if the text is empty.
  void ReadReasoning(RequestFields* item) {
    const std::string summary = TextOfParts(item, "summary", "summary_text");
    const std::string text = TextOfParts(item, "content", "reasoning_text");
    item->Ignore("encrypted_content");
    is_in_turn_ = false;
    reasoning_ += text.empty() ? summary : text;
  }

  RequestFields* fields_;
  Json* messages_;
  Names* names_;
  std::string reasoning_{};  // waits for the item after it
  bool is_in_turn_ = false;  // calls may be added to the last message
};

// Reads "instructions", and after them "input": a text, or a list of items.
void ReadInput(RequestFields* fields, ChatInput* chat, ItemReader::Names* names) {
  std::string instructions;
  fields->Read("instructions", &instructions);
  if (!instructions.empty()) {
    chat->messages.push_back({{"role", "system"}, {"content", instructions}});
  }
  const Json* input = fields->Find("input");
  if (input != nullptr && input->is_string()) {
    chat->messages.push_back({{"role", "user"}, {"content", *input}});
    return;
  }
  if (input == nullptr || !input->is_array() || input->empty()) return;
  ItemReader items(fields, &chat->messages, names);
  for (size_t i = 0; i < input->size() && fields->ok(); ++i) {
    items.Read((*input)[i], absl::StrCat("input[", i, "]"));
  }
  items.Finish();
}

void ReadReasoning(RequestFields* fields, ChatInput* chat) {
  const Json* object = fields->Find("reasoning");
  if (object == nullptr) return;
  RequestFields reasoning(object, "reasoning", fields->ignored());
  std::string effort;
  reasoning.Read("effort", &effort);
  if (!effort.empty()) chat->kwargs["reasoning_effort"] = effort;
  for (const char* name : {"summary", "generate_summary"}) reasoning.Ignore(name);
  reasoning.AllowOnly("enabled", {});
  for (const char* name : {"max_tokens", "budget_tokens"}) {
    reasoning.AllowOnly(name, {}, "max_thinking_tokens");
  }
  fields->Fail(reasoning.Finish());
}

// Refuses fields that need storage, other tools or other media.
void RefuseUnservedResponseFields(RequestFields* fields) {
  if (const Json* id = fields->Find("previous_response_id"); id != nullptr) {
    fields->FailNot("previous_response_id", *id,
                    "known: nothing is stored here; send the whole conversation as input");
  }
  // Reasoning is sent to clients and accepted from them unencrypted.
  fields->AllowOnly("include", {Json::array(), Json::array({"reasoning.encrypted_content"})});
}

void ReadStreaming(RequestFields* fields, ApiRequest* request) {
  fields->Read("stream", &request->stream);
  const Json* object = fields->Find("stream_options");
  if (object == nullptr) return;
  RequestFields inner(object, "stream_options", fields->ignored());
  for (const char* name : {"include_obfuscation", "include_token_texts", "continuous_usage_stats",
                           "prompt_progress"}) {
    inner.AllowOnly(name, {false});
  }
  inner.Ignore("include_usage");  // the last event always has it
  fields->Fail(inner.Finish());
}

// Returns the fields that the answer repeats.
Json RepeatedFields(RequestFields* fields) {
  Json repeated = Json::object();
  const std::pair<const char*, Json> members[] = {{"instructions", nullptr},
                                                  {"metadata", Json::object()},
                                                  {"user", nullptr},
                                                  {"tools", Json::array()},
                                                  {"tool_choice", "auto"},
                                                  {"parallel_tool_calls", true},
                                                  {"reasoning", Json::object()},
                                                  {"text", {{"format", {{"type", "text"}}}}}};
  for (const auto& [name, otherwise] : members) {
    const Json* value = fields->Find(name);
    repeated[name] = value != nullptr ? *value : otherwise;
  }
  return repeated;
}

// Indices of messages and input items differ, because the instructions are a message.
absl::Status InItemsNames(const absl::Status& status, const ItemReader::Names& names) {
  const std::string field = FieldOf(status);
  for (const auto& [of_message, of_item] : names) {
    if (field == of_message) return WithField(status, of_item);
  }
  return absl::StartsWith(field, "messages") ? WithField(status, "input") : status;
}

}  // namespace

absl::StatusOr<ApiRequest> ParseResponsesRequest(absl::string_view body, const ServedModel& model,
                                                 absl::Time now) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  ApiRequest request;
  request.is_chat = true;
  request.is_response = true;
  RequestFields fields(&json, "", model.is_strict ? nullptr : &request.ignored);
  ReadGeneration(&fields, model, &request.request);
  fields.Read("seed", &request.request.seed);
  ReadStreaming(&fields, &request);
  LengthFields lengths;
  lengths.Read(&fields, {"max_output_tokens"}, /*may_be_zero=*/false);
  request.constraint_field = ReadConstraintOfResponse(&fields, &request.request);
  ReadPrediction(&fields, &request.request);
  RefuseUnservedResponseFields(&fields);
  ChatInput chat;
  chat.now = now;
  ItemReader::Names names;
  ReadInput(&fields, &chat, &names);
  IgnoreUnwrittenNames("input", model, &fields);
  ReadTemplateVariables(&fields, &chat);
  ReadReasoning(&fields, &chat);
  ReasoningFields reasoning;
  reasoning.ReadLimit(&fields);
  ReadToolsOfResponse(model, &fields, &chat, &request);
  request.has_generic_tools = HasGenericTools(chat, model);
  request.repeated = RepeatedFields(&fields);
  RefuseFieldsOfOthers(kOnPrompt | kOnAnswer, &fields);
  RETURN_IF_ERROR(fields.Finish());
  const Json& input = json.contains("input") ? json["input"] : Json(nullptr);
  if (input.is_null()) return MissingField("input", "a string or a list of items");
  if (!input.is_string() && (!input.is_array() || input.empty())) {
    return FieldError("input", absl::StrCat(Shown(input), " is not a string or a list of items"));
  }
  absl::StatusOr<std::vector<TokenId>> ids = EncodeChatInput(chat, model);
  if (!ids.ok()) return InItemsNames(ids.status(), names);
  request.prompts.push_back(*std::move(ids));
  RETURN_IF_ERROR(SetReasoning(reasoning, std::move(chat), model, &request));
  AddEndTokens(model, &request.request);
  RETURN_IF_ERROR(SetLengths(model, lengths, std::numeric_limits<int>::max(), &request));
  return request;
}

}  // namespace tandem
