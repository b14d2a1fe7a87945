#include "tools/conversation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/chat_answer.h"
#include "tandem/chat_input.h"
#include "tandem/field_error.h"

namespace tandem {

absl::StatusOr<ChatFormat> ChatFormat::Load(const std::string& path, const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Load(path));
  if (chat_template.is_plain()) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        ": has no chat template, so it cannot hold a conversation (`tandem fetch` lists "
        "models that can)"));
  }
  return ChatFormat(tokenizer, std::move(chat_template));
}

absl::StatusOr<AnswerReader::Options> ChatFormat::Put(ChatInput input, Request* request) const {
  input.now = absl::Now();
  ASSIGN_OR_RETURN(request->prompt_ids, EncodeChat(template_, *tokenizer_, input));
  request->prompt.clear();
  ASSIGN_OR_RETURN(ChatAnswer answer,
                   ChatAnswer::Of(template_, *tokenizer_, input, request->prompt_ids,
                                  request->constraint.has_value()));
  request->shown_special_tokens = std::move(answer.shown_special_tokens);
  if (answer.constraint.has_value()) request->constraint = std::move(answer.constraint);
  request->thinking_budget = answer.thinking_budget;
  if (!request->ignore_eos) {
    const std::vector<TokenId> ends = EndTokenIds(template_, *tokenizer_);
    request->stop_tokens.insert(request->stop_tokens.end(), ends.begin(), ends.end());
  }
  return std::move(answer.reading);
}

absl::StatusOr<AnswerReader::Options> ChatFormat::PutTurn(const Turn& turn,
                                                          Request* request) const {
  if (!request->prompt_ids.empty()) {
    return FieldError("prompt_ids", "found token ids, allowed in a chat: text");
  }
  ChatInput input;
  if (turn.system.has_value()) {
    input.messages.push_back({{"role", "system"}, {"content", *turn.system}});
  }
  input.messages.push_back({{"role", "user"}, {"content", request->prompt}});
  input.tools = turn.tools;
  input.max_thinking_tokens = turn.max_thinking_tokens;
  return Put(std::move(input), request);
}

namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);

}  // namespace

int Conversation::room() const {
  const ModelInfo target = engine_->target_info();
  const int64_t cached = int64_t{target.num_pages} * target.page_size;
  return static_cast<int>(std::min<int64_t>(target.context_length, cached));
}

absl::StatusOr<AnswerReader::Options> Conversation::PutNext(Request* request) const {
  ChatInput input;
  if (!system_.empty()) input.messages.push_back({{"role", "system"}, {"content", system_}});
  for (const JsonValue& message : said_) input.messages.push_back(message);
  input.tools = tools_;
  input.max_thinking_tokens = max_thinking_tokens_;
  ASSIGN_OR_RETURN(AnswerReader::Options reading, format_.Put(std::move(input), request));
  const int left = room() - static_cast<int>(request->prompt_ids.size());
  if (left < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("the context is full: the conversation has ", request->prompt_ids.size(),
                     " tokens, and there is room for ", room(), "; /reset begins a new one"));
  }
  request->max_tokens = std::min(request->max_tokens, left);
  return reading;
}

absl::StatusOr<Completion> Conversation::Send(const std::string& message,
                                              const Callbacks& callbacks) {
  return Answer({{"role", "user"}, {"content", message}}, callbacks);
}

std::vector<JsonValue> Conversation::OpenCalls() const {
  size_t num_results = 0;
  for (auto message = said_.rbegin(); message != said_.rend(); ++message) {
    if (message->contains("tool_calls")) {
      const JsonValue& calls = message->at("tool_calls");
      const auto first = static_cast<std::ptrdiff_t>(std::min(num_results, calls.size()));
      return std::vector<JsonValue>(calls.begin() + first, calls.end());
    }
    if (!IsText(message->at("role"), "tool")) break;
    ++num_results;
  }
  return {};
}

absl::StatusOr<std::optional<Completion>> Conversation::GiveResult(const std::string& result,
                                                                   const Callbacks& callbacks) {
  const std::vector<JsonValue> calls = OpenCalls();
  JsonValue message = {{"role", "tool"},
                       {"tool_call_id", calls[0]["id"]},
                       {"name", calls[0]["function"]["name"]},
                       {"content", result}};
  if (calls.size() > 1) {
    said_.push_back(std::move(message));
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(Completion answer, Answer(std::move(message), callbacks));
  return answer;
}

absl::StatusOr<Completion> Conversation::Answer(JsonValue message, const Callbacks& callbacks) {
  said_.push_back(std::move(message));
  absl::Cleanup unsay = [this] { said_.erase(said_.size() - 1); };
  Request request = base_;
  ASSIGN_OR_RETURN(const AnswerReader::Options reading, PutNext(&request));
  callbacks.on_begin(request, reading);
  ASSIGN_OR_RETURN(const GenerationId id,
                   engine_->Submit(std::move(request), [&](const Piece& piece) {
                     return callbacks.on_piece(piece) && !callbacks.is_interrupted();
                   }));
  absl::StatusOr<Completion> answer = engine_->Wait(id, kBetweenLooks);
  while (absl::IsDeadlineExceeded(answer.status())) {
    if (callbacks.is_interrupted()) engine_->Cancel(id);
    answer = engine_->Wait(id, kBetweenLooks);
  }
  RETURN_IF_ERROR(answer.status());
  if (answer->text.empty()) return answer;  // a template cannot format an empty answer
  std::move(unsay).Cancel();
  said_.push_back(AssistantMessage(AnswerReader::Read(reading, answer->text)));
  return answer;
}

}  // namespace tandem
