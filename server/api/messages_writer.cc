// Answers to POST /v1/messages, in the form of Anthropic's Messages API.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/net/secret.h"
#include "base/string_view.h"
#include "server/api/answer_writer.h"
#include "server/api/api_error.h"
#include "tandem/answer_reader.h"
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

// Thinking, text and calls are separate blocks, in the order of the answer.
class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
      : AnswerWriter(request, model, std::move(stamp)), reader_(request->reading) {}

  std::string FullAnswer(absl::Span<const Completion> completions) override {
    const Completion& completion = completions.front();
    std::string nobody_reads;
    TakeText(completion.text, &nobody_reads);
    TakeEnd(&nobody_reads);
    Json message = MessageJson();
    for (const Block& block : blocks_) message["content"].push_back(BlockJson(block));
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

  std::string PieceEvents(int /*choice*/, const OwnedPiece& piece) override {
    std::string events;
    TakeText(piece.text, &events);
    return events;
  }

  std::string EndEvents(int /*choice*/, FinishReason /*reason*/,
                        absl::Span<const Completion> /*completions*/) override {
    std::string events;
    TakeEnd(&events);
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
    return absl::StrCat("event: error\ndata: ", DumpJson(MessagesErrorJson(status)), "\n\n");
  }

 private:
  enum class Kind { kThinking, kText, kCall };
  struct Block {
    Kind kind = Kind::kText;
    std::string text{};  // of a call: its arguments
    std::string name{};  // of a call, like id
    std::string id{};
    size_t num_sent = 0;  // bytes of the text that events have sent
  };

  // ---- Blocks: functions append the events for each change to `events` ----

  // Returns a block with its text, or as it begins.
  static Json BlockJson(const Block& block, bool is_complete = true) {
    const std::string text = is_complete ? block.text : std::string();
    switch (block.kind) {
      case Kind::kThinking:
        return {{"type", "thinking"},
                {"thinking", text},
                {"signature", is_complete ? SignatureOf(text) : std::string()}};
      case Kind::kText:
        return {{"type", "text"}, {"text", text}};
      case Kind::kCall:
        break;
    }
    Json json = {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}};
    // The arguments of a call that was cut short are not JSON.
    auto input = ParseJsonValue(text, "input");
    json["input"] = input.ok() && input->is_object() ? *std::move(input) : Json::object();
    return json;
  }

  Block& Begin(Block block, std::string* events) {
    EndLast(events);
    blocks_.push_back(std::move(block));
    *events += BlockEvent("content_block_start",
                          {{"content_block", BlockJson(blocks_.back(), /*is_complete=*/false)}});
    return blocks_.back();
  }

  // Returns the block for text of this kind: the last one, or a new one.
  Block& BlockOf(Kind kind, std::string* events) {
    const bool goes_on = !blocks_.empty() && blocks_.back().kind == kind;
    return goes_on ? blocks_.back() : Begin({.kind = kind}, events);
  }

  void Take(const AnswerDelta& delta, std::string* events) {
    if (!delta.reasoning.empty()) BlockOf(Kind::kThinking, events).text += delta.reasoning;
    if (!delta.content.empty()) BlockOf(Kind::kText, events).text += delta.content;
    for (const AnswerDelta::Call& call : delta.calls) {
      if (!call.name.empty()) {
        Begin({.kind = Kind::kCall, .name = call.name, .id = CallIdOf(/*choice=*/0, call.index)},
              events);
      }
      blocks_.back().text += call.arguments;
    }
  }

  // Pushes single bytes, because a delta does not keep the order of its parts.
  void TakeText(std::string_view text, std::string* events) {
    for (size_t i = 0; i < text.size(); ++i) Take(reader_.Push(text.substr(i, 1)), events);
    AppendDelta(events);
  }

  void TakeEnd(std::string* events) {
    Take(reader_.Finish(), events);
    EndLast(events);
  }

  // Sends the text that no event has sent yet.
  void AppendDelta(std::string* events) {
    if (blocks_.empty() || blocks_.back().num_sent == blocks_.back().text.size()) return;
    Block& block = blocks_.back();
    const std::string text = block.text.substr(block.num_sent);
    block.num_sent = block.text.size();
    Json delta;
    switch (block.kind) {
      case Kind::kThinking:
        delta = {{"type", "thinking_delta"}, {"thinking", text}};
        break;
      case Kind::kText:
        delta = {{"type", "text_delta"}, {"text", text}};
        break;
      case Kind::kCall:
        delta = {{"type", "input_json_delta"}, {"partial_json", text}};
        break;
    }
    *events += BlockEvent("content_block_delta", {{"delta", std::move(delta)}});
  }

  void EndLast(std::string* events) {
    if (blocks_.empty()) return;
    AppendDelta(events);
    const Block& block = blocks_.back();
    if (block.kind == Kind::kThinking) {
      const Json delta = {{"type", "signature_delta"}, {"signature", SignatureOf(block.text)}};
      *events += BlockEvent("content_block_delta", {{"delta", delta}});
    }
    *events += BlockEvent("content_block_stop", Json::object());
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
        absl::c_any_of(blocks_, [](const Block& block) { return block.kind == Kind::kCall; });
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
    Json event = {{"index", blocks_.size() - 1}};
    event.update(members);
    return EventOf(type, event);
  }

  AnswerReader reader_;
  std::vector<Block> blocks_{};
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeMessagesWriter(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp) {
  return std::make_unique<MessagesWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
