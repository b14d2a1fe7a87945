// POST /v1/responses: text and calls of functions of OpenAI's Responses API. Nothing is stored.
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "json/json_text.h"
#include "json/request_fields.h"
#include "server/api/api_request.h"
#include "server/api/chat_fields.h"
#include "server/api/reasoning_fields.h"
#include "server/api/request_lengths.h"
#include "server/api/responses_items.h"
#include "server/api/sampling_fields.h"
#include "server/api/structure_fields.h"
#include "server/api/tool_fields.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

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
  ResponsesItemReader items(fields, &chat->messages);
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
  fields->Fail(reasoning.Finish());
}

// What would need storage, other tools or other media.
void RefuseUnservedResponseFields(RequestFields* fields) {
  if (const Json* id = fields->Find("previous_response_id"); id != nullptr) {
    fields->FailNot("previous_response_id", *id,
                    "known: nothing is stored here, send the whole conversation as input");
  }
  fields->AllowOnly("background", {false});
  fields->AllowOnly("conversation", {});
  // Reasoning goes out and comes back as it is.
  fields->AllowOnly("include", {Json::array(), Json::array({"reasoning.encrypted_content"})});
  fields->AllowOnly("prompt", {});
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
  request.request.sampling = model.sampling;
  ReadSampling(&fields, &request.request.sampling);
  ReadStops(&fields, &request.request);
  ReadSpeculation(&fields, model, &request.request);
  ReadCacheSalt(&fields, &request.request);
  ReadKvTransfer(&fields, &request.request);
  fields.Read("seed", &request.request.seed);
  ReadStreaming(&fields, &request);
  LengthFields lengths;
  lengths.Read(&fields, {"max_output_tokens"}, /*may_be_zero=*/false);
  RefuseUnservedSampling(&fields);
  request.constraint_field = ReadConstraintOfResponse(&fields, &request.request);
  ReadPrediction(&fields, &request.request);
  RefuseUnservedResponseFields(&fields);
  TakeFieldsWithoutEffect(&fields);
  ChatInput chat;
  chat.now = now;
  ReadInput(&fields, &chat);
  DisregardUnwrittenNames("input", model, &fields);
  ReadTemplateVariables(&fields, &chat);
  ReadReasoning(&fields, &chat);
  ReadToolsOfResponse(model, &fields, &chat, &request);
  request.has_generic_tools = HasGenericTools(chat, model);
  request.repeated = RepeatedFields(&fields);
  RETURN_IF_ERROR(fields.Finish());
  const Json& input = json.contains("input") ? json["input"] : Json(nullptr);
  if (!input.is_string() && (!input.is_array() || input.empty())) {
    return FieldError("input", absl::StrCat(Shown(input), " is not a string or a list of items"));
  }
  absl::StatusOr<std::vector<TokenId>> ids = EncodeChatInput(chat, model);
  if (!ids.ok()) return InItemsNames(ids.status());
  request.prompts.push_back(*std::move(ids));
  SetReasoning({}, chat, model, &request);
  AddEndTokens(model, &request.request);
  RETURN_IF_ERROR(SetLengths(model, lengths, std::numeric_limits<int>::max(), &request));
  return request;
}

}  // namespace tandem
