#include "server/responses_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "server/api_error.h"
#include "server/report_json.h"

namespace tandem {
namespace {

using Json = JsonValue;

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ResponsesUsage(const Completion& completion) {
  const auto output_tokens = static_cast<int64_t>(completion.token_ids.size());
  return {{"input_tokens", completion.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", completion.cached_tokens}}},
          {"output_tokens", output_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", completion.prompt_tokens + output_tokens}};
}

// How a response that has ended stands.
const char* StatusOf(FinishReason reason) {
  return reason == FinishReason::kStop ? "completed" : "incomplete";
}

}  // namespace

ResponsesWriter::ResponsesWriter(const ApiRequest* request, const ServedModel* model,
                                 AnswerStamp stamp)
    : request_(request),
      model_(model),
      stamp_(std::move(stamp)),
      item_id_(absl::StrCat("msg_", stamp_.id)) {}

Json ResponsesWriter::ItemJson(const Completion* completion) const {
  Json content = Json::array();
  if (completion != nullptr) content.push_back(TextPart(completion->text));
  return {{"type", "message"},
          {"id", item_id_},
          {"status", completion == nullptr ? "in_progress" : StatusOf(completion->finish_reason)},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Json ResponsesWriter::ResponseJson(const Completion* completion) const {
  const SamplingParams& sampling = request_->options.sampling;
  Json json = {{"id", stamp_.id},
               {"object", "response"},
               {"created_at", stamp_.created},
               {"model", model_->name},
               {"system_fingerprint", model_->fingerprint},
               {"status", "in_progress"},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"max_output_tokens", request_->options.max_tokens},
               {"output", Json::array()},
               {"parallel_tool_calls", true},
               {"previous_response_id", nullptr},
               {"store", false},
               {"temperature", sampling.temperature},
               {"top_p", sampling.top_p},
               {"text", {{"format", {{"type", "text"}}}}},
               {"tool_choice", "auto"},
               {"tools", Json::array()},
               {"truncation", "disabled"},
               {"usage", nullptr}};
  json.update(request_->repeated);
  if (completion == nullptr) return json;
  json["status"] = StatusOf(completion->finish_reason);
  if (completion->finish_reason != FinishReason::kStop) {
    json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }
  json["output"].push_back(ItemJson(completion));
  json["usage"] = ResponsesUsage(*completion);
  const std::optional<DrafterKind>& drafter = request_->options.drafter;
  json["speculation"] = SpeculationJson(
      *completion, drafter.has_value() ? std::string(NameOf(*drafter)) : model_->drafter);
  json["timings"] = TimingsJson(*completion);
  return json;
}

std::string ResponsesWriter::Whole(absl::Span<const Completion> completions) {
  return DumpJson(ResponseJson(completions.data()));
}

// ---- Events ----

std::string ResponsesWriter::EventOf(std::string_view type, Json members) {
  members["type"] = std::string(type);
  members["sequence_number"] = num_events_++;
  return absl::StrCat("event: ", View(type), "\ndata: ", DumpJson(members), "\n\n");
}

std::string ResponsesWriter::TextEventOf(std::string_view type, Json members) {
  members.update({{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}});
  return EventOf(type, std::move(members));
}

std::string ResponsesWriter::FirstEvents() {
  // One after the other: they are numbered as they are made.
  std::string events = EventOf("response.created", {{"response", ResponseJson(nullptr)}});
  events += EventOf("response.in_progress", {{"response", ResponseJson(nullptr)}});
  events +=
      EventOf("response.output_item.added", {{"output_index", 0}, {"item", ItemJson(nullptr)}});
  events += TextEventOf("response.content_part.added", {{"part", TextPart("")}});
  return events;
}

std::string ResponsesWriter::PieceEvents(int /*choice*/, const OwnedPiece& piece) {
  if (piece.text.empty()) return "";
  return TextEventOf("response.output_text.delta",
                     {{"delta", piece.text}, {"logprobs", Json::array()}});
}

std::string ResponsesWriter::EndEvents(int /*choice*/, FinishReason /*reason*/,
                                       absl::Span<const Completion> completions) {
  // A stream of one sequence ends with it.
  const Completion& completion = completions.front();
  std::string events = TextEventOf("response.output_text.done",
                                   {{"text", completion.text}, {"logprobs", Json::array()}});
  events += TextEventOf("response.content_part.done", {{"part", TextPart(completion.text)}});
  events +=
      EventOf("response.output_item.done", {{"output_index", 0}, {"item", ItemJson(&completion)}});
  return events;
}

std::string ResponsesWriter::LastEvents(absl::Span<const Completion> completions) {
  const Completion& completion = completions.front();
  return EventOf(absl::StrCat("response.", StatusOf(completion.finish_reason)),
                 {{"response", ResponseJson(&completion)}});
}

std::string ResponsesWriter::ErrorEvents(const absl::Status& status) {
  Json error = ErrorJson(status)["error"];
  Json response = ResponseJson(nullptr);
  response["status"] = "failed";
  response["error"] = {{"code", "server_error"}, {"message", error["message"]}};
  std::string events = EventOf(
      "error", {{"code", error["code"]}, {"message", error["message"]}, {"param", error["param"]}});
  events += EventOf("response.failed", {{"response", std::move(response)}});
  return events;
}

}  // namespace tandem
