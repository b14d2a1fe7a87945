#include "server/api_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/tokenizer/unicode.h"
#include "server/report_json.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// What OpenAI's answers say for a probability of zero.
constexpr double kLogprobOfZero = -9999.0;

double ShownLogprob(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobOfZero; }

int NumCharacters(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

Json BytesOf(std::string_view text) {
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

Json RoundJson(const RoundReport& round) {
  return {{"proposed", round.proposed},
          {"accepted", round.accepted},
          {"target_cached_tokens", round.target_cached_tokens},
          {"draft_cached_tokens", round.draft_cached_tokens}};
}

}  // namespace

ApiResponse::ApiResponse(const ApiRequest* request, const ServedModel* model, std::string id,
                         int64_t created)
    : request_(request),
      model_(model),
      id_(std::move(id)),
      created_(created),
      progress_(request->num_sequences()) {}

Json ApiResponse::Envelope(bool is_chunk) const {
  const char* object = !request_->is_chat ? "text_completion"
                       : is_chunk         ? "chat.completion.chunk"
                                          : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_->name}};
}

Json ApiResponse::UsageOf(absl::Span<const Completion> completions) const {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  for (size_t i = 0; i < completions.size(); ++i) {
    if (!request_->prompt_only) completion_tokens += completions[i].token_ids.size();
    if (i % request_->n != 0) continue;  // a prompt counts once
    prompt_tokens += completions[i].prompt_tokens;
    cached_tokens += completions[i].cached_tokens;
  }
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
}

void ApiResponse::AddReports(absl::Span<const Completion> completions, Json* chunk) const {
  const Completion joint = JointCompletion(completions);
  (*chunk)["speculation"] = SpeculationJson(joint, model_->drafter);
  (*chunk)["timings"] = TimingsJson(joint);
}

// ---- Whole answers ----

Json ApiResponse::Whole(absl::Span<const Completion> completions) {
  Json answer = Envelope(/*is_chunk=*/false);
  answer["choices"] = Json::array();
  for (size_t i = 0; i < completions.size(); ++i) {
    answer["choices"].push_back(ChoiceOf(static_cast<int>(i), completions[i]));
  }
  answer["usage"] = UsageOf(completions);
  AddReports(completions, &answer);
  return answer;
}

Json ApiResponse::ChoiceOf(int choice, const Completion& completion) {
  Json json = {{"index", choice}, {"finish_reason", std::string(NameOf(completion.finish_reason))}};
  std::vector<TokenLogprobs> logprobs;
  if (request_->echo && request_->options.prompt_logprobs.num_top >= 0) {
    for (size_t i = 0; i < completion.prompt_logprobs.size(); ++i) {
      // The first has none; its NaN is written as null.
      logprobs.push_back(completion.prompt_logprobs[i].value_or(
          TokenLogprobs{request_->prompts[choice / request_->n][i], NAN, {}}));
    }
  }
  if (request_->prompt_only) {
    json["token_ids"] = Json::array();
    json["provenance"] = "";
    json["finish_reason"] = "length";
  } else {
    json["token_ids"] = completion.token_ids;
    json["provenance"] = completion.provenance;
    logprobs.insert(logprobs.end(), completion.logprobs.begin(), completion.logprobs.end());
  }
  json["logprobs"] = LogprobsOf(choice, logprobs);
  const std::string text = request_->prompt_only ? "" : completion.text;
  if (request_->is_chat) {
    json["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  } else {
    json["text"] = request_->echo ? PromptText(choice) + text : text;
  }
  return json;
}

// ---- Chunks ----

Json ApiResponse::ChunkChoice(int choice, std::string_view text) const {
  Json json = {{"index", choice}, {"finish_reason", nullptr}, {"logprobs", nullptr}};
  if (request_->is_chat) {
    json["delta"] = Json::object();
    if (!text.empty()) json["delta"]["content"] = std::string(text);
  } else {
    json["text"] = std::string(text);
  }
  json["token_ids"] = Json::array();
  json["provenance"] = "";
  return json;
}

Json ApiResponse::FirstChunk(int choice) {
  if (!request_->is_chat && !request_->echo) return nullptr;
  Json chunk = Envelope(/*is_chunk=*/true);
  Json json = ChunkChoice(choice, request_->is_chat ? "" : PromptText(choice));
  if (request_->is_chat) json["delta"] = {{"role", "assistant"}, {"content", ""}};
  chunk["choices"] = Json::array({std::move(json)});
  if (request_->include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json ApiResponse::Chunk(int choice, const OwnedPiece& piece) {
  Json chunk = Envelope(/*is_chunk=*/true);
  Json json = ChunkChoice(choice, piece.text);
  json["token_ids"] = piece.token_ids;
  json["provenance"] = piece.provenance;
  if (request_->include_token_texts) json["token_texts"] = TokenTextsOf(choice, piece.token_ids);
  json["logprobs"] = LogprobsOf(choice, piece.logprobs);
  chunk["choices"] = Json::array({std::move(json)});
  chunk["round"] = RoundJson(piece.round);
  if (request_->include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json ApiResponse::EndChunk(int choice, std::string_view finish_reason) {
  Json chunk = Envelope(/*is_chunk=*/true);
  Json json = ChunkChoice(choice, "");
  json["finish_reason"] = std::string(finish_reason);
  chunk["choices"] = Json::array({std::move(json)});
  if (request_->include_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json ApiResponse::UsageChunk(absl::Span<const Completion> completions) const {
  Json chunk = Envelope(/*is_chunk=*/true);
  chunk["choices"] = Json::array();
  chunk["usage"] = UsageOf(completions);
  AddReports(completions, &chunk);
  return chunk;
}

// ---- Tokens ----

std::string ApiResponse::PromptText(int choice) const {
  return model_->tokenizer->Decode(request_->prompts[choice / request_->n], /*skip_special=*/true);
}

// The token as text, or "bytes:\xe2\x82" for what is no text of its own.
std::string ApiResponse::TokenText(TokenId id) const {
  const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
  if (!text.has_value()) return "";
  if (FindInvalidUtf8(text->bytes) == std::string_view::npos) return std::string(text->bytes);
  std::string shown = "bytes:";
  for (const char byte : text->bytes) {
    absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(byte));
  }
  return shown;
}

// The text that each token completes; one that only begins a character has none.
Json ApiResponse::TokenTextsOf(int choice, absl::Span<const TokenId> ids) {
  std::unique_ptr<Detokenizer>& detokenizer = progress_[choice].token_texts;
  if (detokenizer == nullptr) {
    detokenizer = Detokenizer::New(model_->tokenizer, request_->prompts[choice / request_->n],
                                   /*skip_special=*/true);
  }
  Json texts = Json::array();
  for (const TokenId id : ids) texts.push_back(detokenizer->Push(id));
  return texts;
}

Json ApiResponse::LogprobsOf(int choice, absl::Span<const TokenLogprobs> logprobs) {
  if (logprobs.empty()) return nullptr;
  if (request_->is_chat) return ChatLogprobs(logprobs);
  Progress* progress = &progress_[choice];
  if (progress->detokenizer == nullptr) {
    const absl::Span<const TokenId> before =
        request_->echo ? absl::Span<const TokenId>()
                       : absl::MakeConstSpan(request_->prompts[choice / request_->n]);
    progress->detokenizer = Detokenizer::New(model_->tokenizer, before, /*skip_special=*/true);
  }
  return CompletionLogprobs(progress, logprobs);
}

Json ApiResponse::CompletionLogprobs(Progress* progress,
                                     absl::Span<const TokenLogprobs> logprobs) const {
  Json json = {{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
  for (const TokenLogprobs& row : logprobs) {
    const bool is_known = !std::isnan(row.logprob);
    const std::string text = TokenText(row.id);
    json["tokens"].push_back(text);
    json["token_logprobs"].push_back(is_known ? Json(ShownLogprob(row.logprob)) : Json(nullptr));
    Json top = Json::object();
    for (const auto& [id, logprob] : row.top) top[TokenText(id)] = ShownLogprob(logprob);
    if (!row.top.empty()) top[text] = ShownLogprob(row.logprob);
    json["top_logprobs"].push_back(is_known ? std::move(top) : Json(nullptr));
    json["text_offset"].push_back(progress->num_characters);
    progress->num_characters += NumCharacters(progress->detokenizer->Push(row.id));
  }
  return json;
}

Json ApiResponse::ChatLogprobs(absl::Span<const TokenLogprobs> logprobs) const {
  const auto entry = [this](TokenId id, float logprob) {
    const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
    return Json{{"token", TokenText(id)},
                {"logprob", ShownLogprob(logprob)},
                {"bytes", BytesOf(text.has_value() ? text->bytes : "")}};
  };
  Json content = Json::array();
  for (const TokenLogprobs& row : logprobs) {
    Json token = entry(row.id, row.logprob);
    token["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : row.top) token["top_logprobs"].push_back(entry(id, logprob));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace tandem
