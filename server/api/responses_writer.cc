#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json/json_writer.h"
#include "base/string_view.h"
#include "engine/report_json.h"
#include "server/api/api_error.h"
#include "server/api/parts_writer.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Returns the status of a response that has ended.
const char* StatusOf(FinishReason reason) {
  return reason == FinishReason::kStop ? "completed" : "incomplete";
}

// Reasoning, text and calls are separate items, in the order of the answer. An empty answer has one
// empty message.
class ResponsesWriter final : public PartsWriter {
 public:
  ResponsesWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
      : PartsWriter(request, model, std::move(stamp), /*is_never_empty=*/true) {}

  std::string FullAnswer(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    TakeAnswer(completion);
    return DumpJson(ResponseJson(&completion));
  }

  std::string FirstEvents() override {
    // Not in one expression: events are numbered in the order in which they are made.
    std::string events = EventOf("response.created", {{"response", ResponseJson(nullptr)}});
    events += EventOf("response.in_progress", {{"response", ResponseJson(nullptr)}});
    return events;
  }

  std::string LastEvents(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    return EventOf(absl::StrCat("response.", StatusOf(completion.finish_reason)),
                   {{"response", ResponseJson(&completion)}});
  }

  std::string ErrorEvents(const absl::Status& status) override {
    Json error = ErrorJson(status)["error"];
    Json response = ResponseJson(nullptr);
    response["status"] = "failed";
    response["error"] = {{"code", "server_error"}, {"message", error["message"]}};
    std::string events = EventOf(
        "error",
        {{"code", error["code"]}, {"message", error["message"]}, {"param", error["param"]}});
    events += EventOf("response.failed", {{"response", std::move(response)}});
    return events;
  }

 private:
  // ---- Items: a part is one ----

  std::string PartBegins() override {
    std::string events = ItemEventOf("response.output_item.added");
    const Part& part = parts().back();
    if (part.kind == Kind::kCall) return events;
    return events + TextEventOf("response.content_part.added", {{"part", PartJson(part, "")}});
  }

  std::string PartContinues(const std::string& more) override {
    switch (parts().back().kind) {
      case Kind::kReasoning:
        return TextEventOf("response.reasoning_text.delta", {{"delta", more}});
      case Kind::kText:
        return TextEventOf("response.output_text.delta",
                           {{"delta", more}, {"logprobs", Json::array()}});
      case Kind::kCall:
        break;
    }
    return TextEventOf("response.function_call_arguments.delta", {{"delta", more}});
  }

  std::string PartEnds() override {
    const Part& part = parts().back();
    std::string events;
    switch (part.kind) {
      case Kind::kReasoning:
        events = TextEventOf("response.reasoning_text.done", {{"text", part.text}});
        break;
      case Kind::kText:
        events = TextEventOf("response.output_text.done",
                             {{"text", part.text}, {"logprobs", Json::array()}});
        break;
      case Kind::kCall:
        events = TextEventOf("response.function_call_arguments.done",
                             {{"arguments", part.text}, {"name", part.name}});
        break;
    }
    if (part.kind != Kind::kCall) {
      events += TextEventOf("response.content_part.done", {{"part", PartJson(part, part.text)}});
    }
    return events + ItemEventOf("response.output_item.done");
  }

  std::string IdOf(size_t index) const {
    const Kind kind = parts()[index].kind;
    const char* const prefix = kind == Kind::kReasoning ? "rs_"
                               : kind == Kind::kCall    ? "fc_"
                                                        : "msg_";
    return absl::StrCat(prefix, stamp_.id, "-", index);
  }

  // Returns the content part that holds an item's text; null for a call.
  static Json PartJson(const Part& part, const std::string& text) {
    switch (part.kind) {
      case Kind::kReasoning:
        return {{"type", "reasoning_text"}, {"text", text}};
      case Kind::kText:
        return {{"type", "output_text"},
                {"text", text},
                {"annotations", Json::array()},
                {"logprobs", Json::array()}};
      case Kind::kCall:
        break;
    }
    return nullptr;
  }

  Json ItemJson(size_t index) const {
    const Part& part = parts()[index];
    Json json = {{"id", IdOf(index)},
                 {"status", part.end.has_value() ? StatusOf(*part.end) : "in_progress"}};
    if (part.kind == Kind::kCall) {
      json.update({{"type", "function_call"},
                   {"call_id", part.call_id},
                   {"name", part.name},
                   {"arguments", part.text}});
      return json;
    }
    // An item begins without a part.
    json["content"] = Json::array();
    const bool has_begun = part.num_sent > 0 || part.end.has_value();
    if (has_begun) json["content"].push_back(PartJson(part, part.text));
    if (part.kind == Kind::kText) {
      json.update({{"type", "message"}, {"role", "assistant"}});
    } else {
      json.update(
          {{"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", nullptr}});
    }
    return json;
  }

  // ---- The response ----

  Json UsageOf(const Completion& completion) const {
    const auto output_tokens = static_cast<int64_t>(completion.token_ids.size());
    return {{"input_tokens", completion.prompt_tokens},
            {"input_tokens_details", CacheUse::Of(*request_, {&completion, 1}).Details()},
            {"output_tokens", output_tokens},
            {"output_tokens_details", {{"reasoning_tokens", ReasoningTokensOf(completion)}}},
            {"total_tokens", completion.prompt_tokens + output_tokens}};
  }

  // Returns the response in its current state; in progress if `completion` is null.
  Json ResponseJson(const Completion* completion) const {
    const SamplingParams& sampling = request_->request.sampling;
    Json json = {{"id", stamp_.id},
                 {"object", "response"},
                 {"created_at", stamp_.created},
                 {"model", model_->name},
                 {"system_fingerprint", model_->fingerprint},
                 {"status", "in_progress"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"max_output_tokens", request_->request.max_tokens},
                 {"output", Json::array()},
                 {"previous_response_id", nullptr},
                 {"store", false},
                 {"temperature", sampling.temperature},
                 {"top_p", sampling.top_p},
                 {"truncation", "disabled"},
                 {"usage", nullptr}};
    json.update(request_->repeated);
    if (completion == nullptr) return json;
    json["status"] = StatusOf(completion->finish_reason);
    if (completion->finish_reason != FinishReason::kStop) {
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    }
    for (size_t i = 0; i < parts().size(); ++i) json["output"].push_back(ItemJson(i));
    json["usage"] = UsageOf(*completion);
    json.update(ReportsOf({completion, 1}));
    if (!completion->choice_logprobs.empty()) {
      json["choice_logprobs"] = ChoiceLogprobsJson(completion->choice_logprobs);
    }
    return json;
  }

  // ---- Events ----

  // Returns the numbered event "event: TYPE\ndata: {...}\n\n".
  std::string EventOf(std::string_view type, Json members) {
    members["type"] = std::string(type);
    members["sequence_number"] = num_events_++;
    return absl::StrCat("event: ", View(type), "\ndata: ", DumpJson(members), "\n\n");
  }

  // An event about the last item, and one about its text.
  std::string ItemEventOf(std::string_view type) {
    const size_t last = parts().size() - 1;
    return EventOf(type, {{"output_index", last}, {"item", ItemJson(last)}});
  }

  std::string TextEventOf(std::string_view type, Json members) {
    const size_t last = parts().size() - 1;
    members.update({{"item_id", IdOf(last)}, {"output_index", last}});
    if (parts()[last].kind != Kind::kCall) members["content_index"] = 0;
    return EventOf(type, std::move(members));
  }

  int num_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const ApiRequest* request,
                                                  const ServedModel* model, AnswerStamp stamp) {
  return std::make_unique<ResponsesWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
