#include "server/api/responses_items.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "json/json_text.h"
#include "server/api/chat_fields.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

using Json = JsonValue;

// The texts of a list of parts, each of this type.
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

}  // namespace

void ResponsesItemReader::Read(const Json& item, const std::string& path) {
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
    fields.FailNot("type", type, "one of message, function_call, function_call_output, reasoning");
  }
  fields_->Fail(fields.Finish());
}

void ResponsesItemReader::ReadMessageItem(const Json& item, const std::string& path) {
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

Json& ResponsesItemReader::BeginTurn() {
  messages_->push_back({{"role", "assistant"}, {"content", ""}});
  if (!reasoning_.empty()) {
    messages_->back()["reasoning_content"] = std::exchange(reasoning_, std::string());
  }
  is_in_turn_ = true;
  return messages_->back();
}

void ResponsesItemReader::FlushReasoning() {
  if (!reasoning_.empty()) BeginTurn();
  is_in_turn_ = false;
}

void ResponsesItemReader::ReadCall(RequestFields* item) {
  std::string id;
  item->Read("call_id", &id);
  Json& message = is_in_turn_ ? messages_->back() : BeginTurn();
  message["tool_calls"].push_back(
      {{"id", id}, {"type", "function"}, {"function", ReadFunctionCall(item)}});
}

void ResponsesItemReader::ReadOutput(RequestFields* item) {
  FlushReasoning();
  std::string id;
  item->Read("call_id", &id);
  messages_->push_back({{"role", "tool"},
                        {"content", ReadContent(item, /*may_lack=*/false, "output")},
                        {"tool_call_id", id}});
}

// The text itself, or where there is none its summary.
void ResponsesItemReader::ReadReasoning(RequestFields* item) {
  const std::string summary = TextOfParts(item, "summary", "summary_text");
  const std::string text = TextOfParts(item, "content", "reasoning_text");
  item->Ignore("encrypted_content");
  is_in_turn_ = false;
  reasoning_ += text.empty() ? summary : text;
}

}  // namespace tandem
