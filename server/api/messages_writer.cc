// Answers to POST /v1/messages, in the form of Anthropic's Messages API.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/net/secret.h"
#include "base/string_view.h"
#include "server/api/api_error.h"
#include "server/api/parts_writer.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Returns the signature of a thinking block, a digest of its text. Clients only send it back.
std::string SignatureOf(absl::string_view thinking) {
  std::array<uint8_t, 32> digest;
  DeriveKey(thinking, "thinking", absl::MakeSpan(digest));
  return absl::Base64Escape({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

class MessagesWriter final : public PartsWriter {
 public:
  MessagesWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
      : PartsWriter(request, model, std::move(stamp), /*is_never_empty=*/false) {}

  std::string FullAnswer(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    TakeAnswer(completion);
    Json message = MessageJson();
    for (const Part& part : parts()) message["content"].push_back(BlockJson(part, part.text));
    message.update(StopJson(completion));
    message["usage"] = UsageOf(completion);
    message.update(ReportsOf(completions));
    return DumpJson(message);
  }

  std::string FirstEvents() override {
    Json message = MessageJson();
    message["usage"] = {{"input_tokens", request_->prompts.front().size()}, {"output_tokens", 0}};
    std::string events = EventOf("message_start", {{"message", std::move(message)}});
    events += EventOf("ping", Json::object());
    return events;
  }

  std::string LastEvents(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    Json members = {{"delta", StopJson(completion)}, {"usage", UsageOf(completion)}};
    members.update(ReportsOf(completions));
    std::string events = EventOf("message_delta", members);
    events += EventOf("message_stop", Json::object());
    return events;
  }

  std::string ErrorEvents(const absl::Status& status) override {
    return tandem::ErrorEvents(ErrorResponse(status, ErrorForm::kAnthropic), ErrorForm::kAnthropic);
  }

 private:
  // ---- Blocks: a part is one ----

  std::string PartBegins() override {
    return BlockEvent("content_block_start", {{"content_block", BlockJson(parts().back(), "")}});
  }

  std::string PartContinues(const std::string& more) override {
    Json delta;
    switch (parts().back().kind) {
      case Kind::kReasoning:
        delta = {{"type", "thinking_delta"}, {"thinking", more}};
        break;
      case Kind::kText:
        delta = {{"type", "text_delta"}, {"text", more}};
        break;
      case Kind::kCall:
        delta = {{"type", "input_json_delta"}, {"partial_json", more}};
        break;
    }
    return BlockEvent("content_block_delta", {{"delta", std::move(delta)}});
  }

  std::string PartEnds() override {
    const Part& part = parts().back();
    std::string events;
    if (part.kind == Kind::kReasoning) {
      const Json delta = {{"type", "signature_delta"}, {"signature", SignatureOf(part.text)}};
      events = BlockEvent("content_block_delta", {{"delta", delta}});
    }
    return events + BlockEvent("content_block_stop", Json::object());
  }

  // Returns a block with its text, or with "" as it begins.
  static Json BlockJson(const Part& part, const std::string& text) {
    switch (part.kind) {
      case Kind::kReasoning:
        return {{"type", "thinking"},
                {"thinking", text},
                {"signature", text.empty() ? std::string() : SignatureOf(text)}};
      case Kind::kText:
        return {{"type", "text"}, {"text", text}};
      case Kind::kCall:
        break;
    }
    Json json = {{"type", "tool_use"}, {"id", part.call_id}, {"name", part.name}};
    // The arguments of a call that was cut short are not JSON.
    auto input = ParseJsonValue(text, "input");
    json["input"] = input.ok() && input->is_object() ? *std::move(input) : Json::object();
    return json;
  }

  // ---- The message ----

  // Returns the message before its first block.
  Json MessageJson() const {
    return {{"id", stamp_.id},         {"type", "message"},        {"role", "assistant"},
            {"model", model_->name},   {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  // Returns the stop sequence that ended the answer, which is the text after its last shown one.
  std::optional<std::string> StopSequenceOf(const Completion& completion) const {
    const Request& asked = request_->request;
    if (completion.finish_reason != FinishReason::kStop || asked.stop.empty()) return std::nullopt;
    const auto detokenizer =
        Detokenizer::New(model_->tokenizer, request_->prompts.front(), asked.skip_special_tokens,
                         asked.shown_special_tokens);
    std::string whole;
    for (const TokenId id : completion.token_ids) whole += detokenizer->Push(id);
    whole += detokenizer->Flush();
    if (!absl::StartsWith(whole, completion.text)) return std::nullopt;
    const std::string rest = whole.substr(completion.text.size());
    for (const std::string& stop : asked.stop) {
      if (absl::StartsWith(rest, stop)) return stop;
    }
    return std::nullopt;
  }

  Json StopJson(const Completion& completion) const {
    const std::optional<std::string> sequence = StopSequenceOf(completion);
    const bool has_called =
        absl::c_any_of(parts(), [](const Part& part) { return part.kind == Kind::kCall; });
    const char* const reason = completion.finish_reason != FinishReason::kStop ? "max_tokens"
                               : sequence.has_value()                          ? "stop_sequence"
                               : has_called                                    ? "tool_use"
                                                                               : "end_turn";
    return {{"stop_reason", reason},
            {"stop_sequence", sequence.has_value() ? Json(*sequence) : Json(nullptr)}};
  }

  // Cached tokens are not part of the input tokens.
  Json UsageOf(const Completion& completion) const {
    return {{"input_tokens", completion.num_read_tokens()},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", completion.cached_tokens},
            {"output_tokens", completion.token_ids.size()},
            {"output_tokens_details", {{"thinking_tokens", ReasoningTokensOf(completion)}}}};
  }

  // ---- Events ----

  // Returns "event: TYPE\ndata: {...}\n\n".
  static std::string EventOf(std::string_view type, const Json& members) {
    Json event = {{"type", std::string(type)}};
    event.update(members);
    return absl::StrCat("event: ", View(type), "\ndata: ", DumpJson(event), "\n\n");
  }

  // An event about the last block.
  std::string BlockEvent(std::string_view type, const Json& members) const {
    Json event = {{"index", parts().size() - 1}};
    event.update(members);
    return EventOf(type, event);
  }
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp) {
  return std::make_unique<MessagesWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
