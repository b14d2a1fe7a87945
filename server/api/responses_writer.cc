#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json/json_writer.h"
#include "base/string_view.h"
#include "engine/report_json.h"
#include "server/api/answer_writer.h"
#include "server/api/api_error.h"
#include "tandem/answer_reader.h"
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
class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
      : AnswerWriter(request, model, std::move(stamp)), reader_(request->reading) {}

  std::string FullAnswer(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    std::string nobody_reads;
    TakeText(completion.text, &nobody_reads);
    TakeEnd(completion.finish_reason, &nobody_reads);
    return DumpJson(ResponseJson(&completion));
  }

  std::string FirstEvents() override {
    // Not in one expression: events are numbered in the order in which they are made.
    std::string events = EventOf("response.created", {{"response", ResponseJson(nullptr)}});
    events += EventOf("response.in_progress", {{"response", ResponseJson(nullptr)}});
    return events;
  }

  std::string PieceEvents(int /*choice*/, const OwnedPiece& piece) override {
    std::string events;
    TakeText(piece.text, &events);
    return events;
  }

  std::string EndEvents(int /*choice*/, FinishReason reason,
                        absl::Span<const Completion> /*completions*/) override {
    std::string events;
    TakeEnd(reason, &events);
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
  enum class Kind { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind = Kind::kMessage;
    std::string id{};
    std::string text{};  // the arguments of a call
    std::string name{};  // of a call, like call_id
    std::string call_id{};
    const char* status = "in_progress";
    size_t num_sent = 0;  // bytes of the text that events have sent
  };

  // ---- Items: functions append the events for each change to `events` ----

  // Returns the content part that holds an item's text; null for a call.
  static Json PartJson(const Item& item, const std::string& text) {
    switch (item.kind) {
      case Kind::kReasoning:
        return {{"type", "reasoning_text"}, {"text", text}};
      case Kind::kMessage:
        return {{"type", "output_text"},
                {"text", text},
                {"annotations", Json::array()},
                {"logprobs", Json::array()}};
      case Kind::kCall:
        break;
    }
    return nullptr;
  }

  static Json ItemJson(const Item& item) {
    Json json = {{"id", item.id}, {"status", item.status}};
    if (item.kind == Kind::kCall) {
      json.update({{"type", "function_call"},
                   {"call_id", item.call_id},
                   {"name", item.name},
                   {"arguments", item.text}});
      return json;
    }
    // An item begins without a part.
    json["content"] = Json::array();
    const bool has_begun = item.num_sent > 0 || std::string_view(item.status) != "in_progress";
    if (has_begun) json["content"].push_back(PartJson(item, item.text));
    if (item.kind == Kind::kMessage) {
      json.update({{"type", "message"}, {"role", "assistant"}});
    } else {
      json.update(
          {{"type", "reasoning"}, {"summary", Json::array()}, {"encrypted_content", nullptr}});
    }
    return json;
  }

  Item& Begin(Kind kind, std::string* events) {
    if (!items_.empty()) EndLast("completed", events);
    const char* const prefix = kind == Kind::kReasoning ? "rs_"
                               : kind == Kind::kCall    ? "fc_"
                                                        : "msg_";
    items_.push_back({.kind = kind, .id = absl::StrCat(prefix, stamp_.id, "-", items_.size())});
    return items_.back();
  }

  // Returns the item for text of this kind: the last one, or a new one.
  Item& ItemOf(Kind kind, std::string* events) {
    if (!items_.empty() && items_.back().kind == kind) return items_.back();
    Item& item = Begin(kind, events);
    *events += ItemEventOf("response.output_item.added");
    *events += TextEventOf("response.content_part.added", {{"part", PartJson(item, "")}});
    return item;
  }

  void Take(const AnswerDelta& delta, std::string* events) {
    if (!delta.reasoning.empty()) ItemOf(Kind::kReasoning, events).text += delta.reasoning;
    if (!delta.content.empty()) ItemOf(Kind::kMessage, events).text += delta.content;
    for (const AnswerDelta::Call& call : delta.calls) {
      if (!call.name.empty()) {
        Item& item = Begin(Kind::kCall, events);
        item.name = call.name;
        item.call_id = CallIdOf(/*choice=*/0, num_calls_++);
        *events += ItemEventOf("response.output_item.added");
      }
      items_.back().text += call.arguments;
    }
  }

  // Pushes single bytes, because a delta does not keep the order of its parts.
  void TakeText(std::string_view text, std::string* events) {
    for (size_t i = 0; i < text.size(); ++i) Take(reader_.Push(text.substr(i, 1)), events);
    AppendDelta(events);
  }

  void TakeEnd(FinishReason reason, std::string* events) {
    Take(reader_.Finish(), events);
    if (items_.empty()) ItemOf(Kind::kMessage, events);
    EndLast(StatusOf(reason), events);
  }

  // Sends the text that no event has sent yet.
  void AppendDelta(std::string* events) {
    if (items_.empty()) return;
    Item& item = items_.back();
    if (item.num_sent == item.text.size()) return;
    const std::string delta = item.text.substr(item.num_sent);
    item.num_sent = item.text.size();
    switch (item.kind) {
      case Kind::kReasoning:
        *events += TextEventOf("response.reasoning_text.delta", {{"delta", delta}});
        return;
      case Kind::kMessage:
        *events += TextEventOf("response.output_text.delta",
                               {{"delta", delta}, {"logprobs", Json::array()}});
        return;
      case Kind::kCall:
        *events += TextEventOf("response.function_call_arguments.delta", {{"delta", delta}});
        return;
    }
  }

  void EndLast(const char* status, std::string* events) {
    AppendDelta(events);
    Item& item = items_.back();
    item.status = status;
    switch (item.kind) {
      case Kind::kReasoning:
        *events += TextEventOf("response.reasoning_text.done", {{"text", item.text}});
        break;
      case Kind::kMessage:
        *events += TextEventOf("response.output_text.done",
                               {{"text", item.text}, {"logprobs", Json::array()}});
        break;
      case Kind::kCall:
        *events += TextEventOf("response.function_call_arguments.done",
                               {{"arguments", item.text}, {"name", item.name}});
        break;
    }
    if (item.kind != Kind::kCall) {
      *events += TextEventOf("response.content_part.done", {{"part", PartJson(item, item.text)}});
    }
    *events += ItemEventOf("response.output_item.done");
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
    for (const Item& item : items_) json["output"].push_back(ItemJson(item));
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
    return EventOf(type, {{"output_index", items_.size() - 1}, {"item", ItemJson(items_.back())}});
  }

  std::string TextEventOf(std::string_view type, Json members) {
    members.update({{"item_id", items_.back().id}, {"output_index", items_.size() - 1}});
    if (items_.back().kind != Kind::kCall) members["content_index"] = 0;
    return EventOf(type, std::move(members));
  }

  AnswerReader reader_;
  std::vector<Item> items_{};
  int num_calls_ = 0;
  int num_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const ApiRequest* request,
                                                  const ServedModel* model, AnswerStamp stamp) {
  return std::make_unique<ResponsesWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
