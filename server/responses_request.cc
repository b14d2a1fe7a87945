// POST /v1/responses: the text part of OpenAI's Responses API. Nothing is stored.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/status_macros.h"
#include "model/formats/json_text.h"
#include "model/formats/json_value.h"
#include "server/api_request.h"
#include "server/chat_fields.h"
#include "server/request_fields.h"
#include "server/request_lengths.h"
#include "server/sampling_fields.h"
#include "server/structure_fields.h"

namespace tandem {
namespace {

using Json = JsonValue;

Json TextMember(const Json& item, const char* name) {
  const auto it = item.find(name);
  return it == item.end() ? Json(nullptr) : *it;
}

// An item as the message that says the same; what is no item of a conversation stays as it is, for
// the reader of messages to name.
Json MessageOfItem(const Json& item) {
  if (!item.is_object()) return item;
  const Json type = TextMember(item, "type");
  if (IsText(type, "function_call")) {
    return {
        {"role", "assistant"},
        {"content", nullptr},
        {"tool_calls",
         {{{"id", TextMember(item, "call_id")},
           {"type", "function"},
           {"function",
            {{"name", TextMember(item, "name")}, {"arguments", TextMember(item, "arguments")}}}}}}};
  }
  if (IsText(type, "function_call_output")) {
    return {{"role", "tool"},
            {"tool_call_id", TextMember(item, "call_id")},
            {"content", TextMember(item, "output")}};
  }
  Json message = item;
  if (type.is_null() || IsText(type, "message")) message.erase("type");
  for (const char* name : {"id", "status"}) message.erase(name);
  return message;
}

// "input": a text, or a list of items, behind "instructions".
void ReadInput(RequestFields* fields, ChatInput* chat) {
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
  for (size_t i = 0; i < input->size(); ++i) {
    const std::string path = absl::StrCat("input[", i, "]");
    const Json& item = (*input)[i];
    const Json type = item.is_object() ? TextMember(item, "type") : Json(nullptr);
    const bool is_known = type.is_null() || IsText(type, "message") ||
                          IsText(type, "function_call") || IsText(type, "function_call_output");
    if (!is_known) {
      fields->Fail(FieldError(absl::StrCat(path, ".type"),
                              absl::StrCat(Shown(type),
                                           " is not one of message, function_call, "
                                           "function_call_output")));
      return;
    }
    ReadMessage(MessageOfItem(item), path, fields, &chat->messages);
  }
}

void ReadReasoning(RequestFields* fields, ChatInput* chat) {
  const Json* object = fields->Find("reasoning");
  if (object == nullptr) return;
  RequestFields reasoning(object, "reasoning", fields->ignored());
  std::string effort;
  reasoning.Read("effort", &effort);
  if (!effort.empty()) chat->kwargs["reasoning_effort"] = effort;
  for (const char* name : {"summary", "generate_summary"}) reasoning.Ignore(name);
  fields->Fail(reasoning.Finish());
}

// What would need storage, tools or other media.
void RefuseUnservedResponseFields(RequestFields* fields) {
  if (const Json* id = fields->Find("previous_response_id"); id != nullptr) {
    fields->FailNot("previous_response_id", *id,
                    "known: nothing is stored here, send the whole conversation as input");
  }
  fields->AllowOnly("background", {false});
  fields->AllowOnly("conversation", {});
  fields->AllowOnly("include", {Json::array()});
  fields->AllowOnly("parallel_tool_calls", {true, false});
  fields->AllowOnly("prompt", {});
  fields->AllowOnly("tool_choice", {"none", "auto"});
  fields->AllowOnly("tools", {Json::array()});
  fields->AllowOnly("top_logprobs", {0});
  fields->AllowOnly("truncation", {"disabled"});
  fields->Ignore("max_tool_calls");
}

void ReadStreaming(RequestFields* fields, ApiRequest* request) {
  fields->Read("stream", &request->stream);
  const Json* object = fields->Find("stream_options");
  if (object == nullptr) return;
  RequestFields inner(object, "stream_options", fields->ignored());
  inner.AllowOnly("include_obfuscation", {false});
  fields->Fail(inner.Finish());
}

// What the answer repeats.
Json RepeatedFields(RequestFields* fields) {
  Json repeated = Json::object();
  for (const char* name : {"instructions", "metadata", "user"}) {
    const Json* value = fields->Find(name);
    repeated[name] = value != nullptr ? *value : Json(nullptr);
  }
  if (repeated["metadata"].is_null()) repeated["metadata"] = Json::object();
  return repeated;
}

// Items stand behind the instructions, which are a message.
absl::Status InItemsNames(const absl::Status& status) {
  const std::string field = FieldOf(status);
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
  std::string name = model.name;
  fields.Read("model", &name);
  fields.Fail(CheckModelName(name, model));
  request.options.sampling = model.sampling;
  ReadSampling(&fields, &request.options.sampling);
  ReadStops(&fields, &request.options);
  ReadSpeculation(&fields, model, &request.options);
  fields.Read("seed", &request.options.seed);
  ReadStreaming(&fields, &request);
  LengthFields lengths;
  lengths.Read(&fields, {"max_output_tokens"}, /*may_be_zero=*/false);
  RefuseUnservedSampling(&fields);
  request.constraint_field = ReadConstraintOfResponse(&fields, &request.options);
  ReadPrediction(&fields, &request.options);
  RefuseUnservedResponseFields(&fields);
  TakeFieldsWithoutEffect(&fields);
  ChatInput chat;
  chat.now = now;
  ReadInput(&fields, &chat);
  ReadReasoning(&fields, &chat);
  request.repeated = RepeatedFields(&fields);
  RETURN_IF_ERROR(fields.Finish());
  const Json& input = json.contains("input") ? json["input"] : Json(nullptr);
  if (!input.is_string() && (!input.is_array() || input.empty())) {
    return FieldError("input", absl::StrCat(Shown(input), " is not a string or a list of items"));
  }
  absl::StatusOr<std::vector<TokenId>> ids = EncodeChatInput(chat, model);
  if (!ids.ok()) return InItemsNames(ids.status());
  request.prompts.push_back(*std::move(ids));
  AddEndTokens(model, &request.options);
  RETURN_IF_ERROR(SetLengths(model, lengths, std::numeric_limits<int>::max(), &request));
  return request;
}

}  // namespace tandem
