#include "server/api/completions_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "engine/report_json.h"
#include "server/api/answer_size.h"
#include "server/api/api_error.h"
#include "server/api/cache_use.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// What OpenAI's answers say for a probability of zero.
constexpr double kLogprobOfZero = -9999.0;

double ShownLogprob(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobOfZero; }

int NumCharacters(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

Json RoundJson(const RoundReport& round) {
  return {{"proposed", round.proposed},
          {"accepted", round.accepted},
          {"target_cached_tokens", round.target_cached_tokens},
          {"draft_cached_tokens", round.draft_cached_tokens}};
}

constexpr char kDone[] = "data: [DONE]\n\n";

std::string EventOf(std::string_view json) {
  return json.empty() ? "" : absl::StrCat("data: ", View(json), "\n\n");
}

double MeanLogprob(const Completion& completion) {
  double sum = 0;
  for (const TokenLogprobs& row : completion.logprobs) sum += row.logprob;
  return completion.logprobs.empty() ? 0 : sum / static_cast<double>(completion.logprobs.size());
}

// An answer that ends in calls does so for their sake.
std::string ReasonOf(FinishReason reason, int num_calls) {
  return reason == FinishReason::kStop && num_calls > 0 ? "tool_calls"
                                                        : std::string(NameOf(reason));
}

// About what the answer's JSON takes, so that its string need not grow, which doubles it.
size_t SizeOf(absl::Span<const Completion> completions) {
  size_t size = 2000;
  for (const Completion& completion : completions) {
    size_t num_logprobs = 0;
    for (const TokenLogprobs& row : completion.logprobs) num_logprobs += 1 + row.top.size();
    for (const auto& row : completion.prompt_logprobs)
      num_logprobs += 1 + (row ? row->top.size() : 0);
    size += 500 + completion.text.size() + completion.token_ids.size() * kTokenBytes +
            num_logprobs * kLogprobBytes;
  }
  return size;
}

}  // namespace

CompletionsWriter::CompletionsWriter(const ApiRequest* request, const ServedModel* model,
                                     AnswerStamp stamp)
    : request_(request),
      model_(model),
      stamp_(std::move(stamp)),
      progress_(request->num_sequences()) {}

void CompletionsWriter::AddEnvelope(bool is_chunk, JsonWriter* json) const {
  const char* object = !request_->is_chat ? "text_completion"
                       : is_chunk         ? "chat.completion.chunk"
                                          : "chat.completion";
  json->Key("id").String(stamp_.id).Key("object").String(object);
  json->Key("created").Integer(stamp_.created).Key("model").String(model_->name);
  json->Key("system_fingerprint").String(model_->fingerprint);
}

Json CompletionsWriter::UsageOf(absl::Span<const Completion> completions) const {
  const CacheUse prompts = CacheUse::Of(*request_, completions);
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;
  int64_t predicted = 0;
  int64_t predicted_kept = 0;
  for (const Completion& completion : completions) {
    completion_tokens += completion.token_ids.size();
    reasoning_tokens += ReasoningTokensOf(*request_, *model_, completion);
    predicted += completion.stats.predicted;
    predicted_kept += completion.stats.predicted_kept;
  }
  return {{"prompt_tokens", prompts.prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompts.prompt_tokens + completion_tokens},
          {"prompt_tokens_details", prompts.Details()},
          {"completion_tokens_details",
           {{"reasoning_tokens", reasoning_tokens},
            {"accepted_prediction_tokens", predicted_kept},
            {"rejected_prediction_tokens", predicted - predicted_kept}}}};
}

void CompletionsWriter::AddReports(absl::Span<const Completion> completions,
                                   JsonWriter* json) const {
  const Completion joint = JointCompletion(completions);
  const std::optional<DrafterKind>& drafter = request_->request.drafter;
  const std::string name = drafter.has_value() ? std::string(NameOf(*drafter)) : model_->drafter;
  json->Key("speculation").Value(SpeculationJson(joint, name));
  json->Key("timings").Value(TimingsJson(joint));
  const auto& transfer = completions.front().kv_transfer_params;
  if (transfer.has_value()) json->Key("kv_transfer_params").Value(KvTransferJson(*transfer));
}

// ---- Whole answers ----

std::string CompletionsWriter::Whole(absl::Span<const Completion> completions) {
  std::string text;
  JsonWriter json(&text);
  text.reserve(SizeOf(completions));
  json.BeginObject();
  AddEnvelope(/*is_chunk=*/false, &json);
  json.Key("choices").BeginArray();
  int choice = 0;
  for (const int i : BestOf(completions)) WriteChoice(choice++, completions[i], &json);
  json.EndArray().Key("usage").Value(UsageOf(completions));
  if (request_->is_chat && request_->num_prompt_logprobs >= 0) {
    WritePromptLogprobs(0, completions[0], &json);
  }
  AddReports(completions, &json);
  json.EndObject();
  return text;
}

// The sequences that are answered: of each prompt the n whose tokens are the likeliest on average,
// the likeliest first; all in their order if there are no more than that.
std::vector<int> CompletionsWriter::BestOf(absl::Span<const Completion> completions) const {
  const int each = request_->sequences_per_prompt();
  std::vector<int> best;
  for (int first = 0; first < static_cast<int>(completions.size()); first += each) {
    std::vector<int> order(each);
    std::iota(order.begin(), order.end(), first);
    if (each > request_->n) {
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return MeanLogprob(completions[a]) > MeanLogprob(completions[b]);
      });
    }
    best.insert(best.end(), order.begin(), order.begin() + request_->n);
  }
  return best;
}

Json CompletionsWriter::CallsJson(int choice, const AnswerDelta& delta, bool is_chunk) const {
  Json calls = Json::array();
  for (const AnswerDelta::Call& call : delta.calls) {
    Json json = {{"function", {{"arguments", call.arguments}}}};
    if (is_chunk) json["index"] = call.index;
    if (!call.name.empty()) {
      json["id"] = CallIdOf(stamp_, choice, call.index);
      json["type"] = "function";
      json["function"]["name"] = call.name;
    }
    calls.push_back(std::move(json));
  }
  return calls;
}

void CompletionsWriter::WriteMessage(int choice, const Completion& completion,
                                     JsonWriter* json) const {
  AnswerReader reader(request_->reading);
  AnswerDelta answer = {.reasoning = request_->echoed_reasoning, .content = request_->echoed};
  answer.Append(reader.Push(completion.text));
  answer.Append(reader.Finish());
  const bool has_other = reader.num_calls() > 0 || !answer.reasoning.empty();
  Json message = {{"role", "assistant"}, {"content", answer.content}, {"refusal", nullptr}};
  if (answer.content.empty() && has_other) message["content"] = nullptr;
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (reader.num_calls() > 0) message["tool_calls"] = CallsJson(choice, answer, false);
  const std::string reason = ReasonOf(completion.finish_reason, reader.num_calls());
  json->Key("finish_reason").String(reason).Key("message").Value(message);
}

void CompletionsWriter::WriteChoice(int choice, const Completion& completion, JsonWriter* json) {
  const std::string& text = completion.text;
  json->BeginObject().Key("index").Integer(choice);
  if (request_->is_chat) {
    WriteMessage(choice, completion, json);
  } else {
    json->Key("finish_reason").String(NameOf(completion.finish_reason));
    json->Key("text").String(request_->echo ? PromptText(choice) + text : text);
  }
  AddTokens(completion.token_ids, completion.provenance, json);
  AddLogprobs(choice, RowsOf(choice, completion), json);
  if (!request_->is_chat && request_->num_prompt_logprobs >= 0) {
    WritePromptLogprobs(choice, completion, json);
  }
  json->EndObject();
}

std::vector<CompletionsWriter::Row> CompletionsWriter::RowsOf(int choice,
                                                              const Completion& completion) const {
  std::vector<Row> rows;
  if (request_->num_logprobs < 0) return rows;
  if (request_->echo && !request_->is_chat) {
    const std::vector<TokenId>& prompt = PromptOf(choice);
    for (size_t i = 0; i < completion.prompt_logprobs.size(); ++i) {
      const std::optional<TokenLogprobs>& known = completion.prompt_logprobs[i];
      rows.push_back({prompt[i], known.has_value() ? &*known : nullptr});
    }
  }
  for (const TokenLogprobs& row : completion.logprobs) rows.push_back({row.id, &row});
  return rows;
}

// ---- Chunks ----

void CompletionsWriter::BeginChunk(int choice, const std::string& finish_reason,
                                   JsonWriter* json) const {
  json->BeginObject();
  AddEnvelope(/*is_chunk=*/true, json);
  json->Key("choices").BeginArray().BeginObject().Key("index").Integer(choice).Key("finish_reason");
  finish_reason.empty() ? json->Null() : json->String(finish_reason);
}

void CompletionsWriter::EndChoices(JsonWriter* json) const {
  json->EndObject().EndArray();
  if (request_->include_usage) json->Key("usage").Null();
}

void CompletionsWriter::AddText(std::string_view text, JsonWriter* json) const {
  if (!request_->is_chat) {
    json->Key("text").String(text);
    return;
  }
  json->Key("delta").BeginObject();
  if (!text.empty()) json->Key("content").String(text);
  json->EndObject();
}

void CompletionsWriter::AddDelta(int choice, const AnswerDelta& delta, JsonWriter* json) const {
  Json members = Json::object();
  if (!delta.reasoning.empty()) members["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) members["content"] = delta.content;
  if (!delta.calls.empty()) members["tool_calls"] = CallsJson(choice, delta, /*is_chunk=*/true);
  json->Key("delta").Value(members);
}

std::string CompletionsWriter::FirstChunk(int choice) {
  std::string text;
  if (!request_->is_chat && !request_->echo) return text;
  JsonWriter json(&text);
  BeginChunk(choice, "", &json);
  if (request_->reading.TakesApart()) progress_[choice].reader.emplace(request_->reading);
  if (request_->is_chat) {
    Json delta = {{"role", "assistant"}, {"content", request_->echoed}};
    if (!request_->echoed_reasoning.empty()) {
      delta["reasoning_content"] = request_->echoed_reasoning;
    }
    json.Key("delta").Value(delta);
  } else {
    AddText(PromptText(choice), &json);
  }
  AddTokens({}, "", &json);
  AddLogprobs(choice, {}, &json);
  EndChoices(&json);
  json.EndObject();
  return text;
}

std::string CompletionsWriter::Chunk(int choice, const OwnedPiece& piece) {
  std::string text;
  JsonWriter json(&text);
  std::vector<Row> rows;
  for (const TokenLogprobs& row : piece.logprobs) rows.push_back({row.id, &row});
  BeginChunk(choice, "", &json);
  if (std::optional<AnswerReader>& reader = progress_[choice].reader; reader.has_value()) {
    AddDelta(choice, reader->Push(piece.text), &json);
  } else {
    AddText(piece.text, &json);
  }
  AddTokens(piece.token_ids, piece.provenance, &json);
  if (request_->include_token_texts) AddTokenTexts(choice, piece.token_ids, &json);
  AddLogprobs(choice, rows, &json);
  EndChoices(&json);
  json.Key("round").Value(RoundJson(piece.round)).EndObject();
  return text;
}

std::string CompletionsWriter::EndChunk(int choice, FinishReason finish_reason,
                                        absl::Span<const Completion> completions) {
  std::string text;
  JsonWriter json(&text);
  if (std::optional<AnswerReader>& reader = progress_[choice].reader; reader.has_value()) {
    const AnswerDelta delta = reader->Finish();
    BeginChunk(choice, ReasonOf(finish_reason, reader->num_calls()), &json);
    AddDelta(choice, delta, &json);
  } else {
    BeginChunk(choice, std::string(NameOf(finish_reason)), &json);
    AddText("", &json);
  }
  AddTokens({}, "", &json);
  AddLogprobs(choice, {}, &json);
  EndChoices(&json);
  if (!completions.empty()) AddReports(completions, &json);
  json.EndObject();
  return text;
}

std::string CompletionsWriter::UsageChunk(absl::Span<const Completion> completions) const {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject();
  AddEnvelope(/*is_chunk=*/true, &json);
  json.Key("choices").BeginArray().EndArray().Key("usage").Value(UsageOf(completions));
  AddReports(completions, &json);
  json.EndObject();
  return text;
}

// ---- Events ----

std::string CompletionsWriter::FirstEvents() {
  std::string events;
  for (int i = 0; i < request_->num_sequences(); ++i) events += EventOf(FirstChunk(i));
  return events;
}

std::string CompletionsWriter::PieceEvents(int choice, const OwnedPiece& piece) {
  return EventOf(Chunk(choice, piece));
}

std::string CompletionsWriter::EndEvents(int choice, FinishReason reason,
                                         absl::Span<const Completion> completions) {
  return EventOf(EndChunk(choice, reason, completions));
}

std::string CompletionsWriter::LastEvents(absl::Span<const Completion> completions) {
  std::string events;
  if (request_->include_usage) events = EventOf(UsageChunk(completions));
  return events + kDone;
}

std::string CompletionsWriter::ErrorEvents(const absl::Status& status) {
  return EventOf(ErrorResponse(status).body) + kDone;
}

// ---- Tokens ----

const std::vector<TokenId>& CompletionsWriter::PromptOf(int choice) const {
  return request_->prompts[choice / request_->n];
}

std::string CompletionsWriter::PromptText(int choice) const {
  return model_->tokenizer->Decode(PromptOf(choice), request_->request.skip_special_tokens);
}

std::unique_ptr<Detokenizer> CompletionsWriter::NewDetokenizer(
    absl::Span<const TokenId> before) const {
  return Detokenizer::New(model_->tokenizer, before, request_->request.skip_special_tokens,
                          request_->request.shown_special_tokens);
}

// The token as text, or "bytes:\xe2\x82" for what is no text of its own.
std::string CompletionsWriter::TokenText(TokenId id) const {
  const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
  if (!text.has_value()) return "";
  if (FindInvalidUtf8(text->bytes) == std::string_view::npos) return std::string(text->bytes);
  std::string shown = "bytes:";
  for (const char byte : text->bytes) {
    absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(byte));
  }
  return shown;
}

void CompletionsWriter::AddTokens(absl::Span<const TokenId> ids, std::string_view provenance,
                                  JsonWriter* json) const {
  json->Key("token_ids").BeginArray();
  for (const TokenId id : ids) json->Integer(id);
  json->EndArray().Key("provenance").String(provenance);
}

// The text that each token completes; one that only begins a character has none.
void CompletionsWriter::AddTokenTexts(int choice, absl::Span<const TokenId> ids, JsonWriter* json) {
  std::unique_ptr<Detokenizer>& detokenizer = progress_[choice].token_texts;
  if (detokenizer == nullptr) {
    detokenizer = NewDetokenizer(PromptOf(choice));
  }
  json->Key("token_texts").BeginArray();
  for (const TokenId id : ids) json->String(detokenizer->Push(id));
  json->EndArray();
}

void CompletionsWriter::AddLogprobs(int choice, absl::Span<const Row> rows, JsonWriter* json) {
  json->Key("logprobs");
  if (rows.empty()) {
    json->Null();
    return;
  }
  if (request_->is_chat) return WriteChatLogprobs(rows, json);
  Progress* progress = &progress_[choice];
  if (progress->detokenizer == nullptr) {
    const absl::Span<const TokenId> before =
        request_->echo ? absl::Span<const TokenId>() : absl::MakeConstSpan(PromptOf(choice));
    progress->detokenizer = NewDetokenizer(before);
  }
  WriteCompletionLogprobs(progress, rows, json);
}

void CompletionsWriter::WriteCompletionLogprobs(Progress* progress, absl::Span<const Row> rows,
                                                JsonWriter* json) const {
  json->BeginObject().Key("tokens").BeginArray();
  for (const Row& row : rows) json->String(TokenText(row.id));
  json->EndArray().Key("token_logprobs").BeginArray();
  for (const Row& row : rows) {
    row.logprobs == nullptr ? json->Null() : json->Number(ShownLogprob(row.logprobs->logprob));
  }
  json->EndArray().Key("top_logprobs").BeginArray();
  for (const Row& row : rows) WriteTopLogprobs(row.logprobs, json);
  json->EndArray().Key("text_offset").BeginArray();
  for (const Row& row : rows) {
    json->Integer(progress->num_characters);
    progress->num_characters += NumCharacters(progress->detokenizer->Push(row.id));
  }
  json->EndArray().EndObject();
}

// By text, which several tokens may share.
void CompletionsWriter::WriteTopLogprobs(const TokenLogprobs* logprobs, JsonWriter* json) const {
  if (logprobs == nullptr) {
    json->Null();
    return;
  }
  std::map<std::string, float> by_text;
  // Of a prompt more may be known, for prompt_logprobs.
  const size_t num_shown = std::min<size_t>(logprobs->top.size(), request_->num_logprobs);
  for (const auto& [id, logprob] : absl::MakeConstSpan(logprobs->top).first(num_shown)) {
    by_text[TokenText(id)] = logprob;
  }
  if (!by_text.empty()) by_text[TokenText(logprobs->id)] = logprobs->logprob;
  json->BeginObject();
  for (const auto& [text, logprob] : by_text) json->Key(text).Number(ShownLogprob(logprob));
  json->EndObject();
}

// As vLLM has them: by token id, the prompt's own token last if it is not among the likeliest.
void CompletionsWriter::WritePromptLogprobs(int choice, const Completion& completion,
                                            JsonWriter* json) const {
  const auto write = [&](TokenId id, float logprob, std::optional<int> rank) {
    json->Key(absl::StrCat(id)).BeginObject().Key("logprob").Number(ShownLogprob(logprob));
    json->Key("rank");
    rank.has_value() ? json->Integer(*rank) : json->Null();
    json->Key("decoded_token").String(TokenText(id)).EndObject();
  };
  const std::vector<TokenId>& prompt = PromptOf(choice);
  json->Key("prompt_logprobs").BeginArray();
  for (size_t i = 0; i < completion.prompt_logprobs.size(); ++i) {
    const std::optional<TokenLogprobs>& row = completion.prompt_logprobs[i];
    if (!row.has_value()) {
      json->Null();
      continue;
    }
    json->BeginObject();
    bool is_among = false;
    const size_t num_shown = std::min<size_t>(row->top.size(), request_->num_prompt_logprobs);
    for (size_t rank = 0; rank < num_shown; ++rank) {
      const auto& [id, logprob] = row->top[rank];
      is_among = is_among || id == prompt[i];
      write(id, logprob, static_cast<int>(rank) + 1);
    }
    if (!is_among) write(prompt[i], row->logprob, std::nullopt);
    json->EndObject();
  }
  json->EndArray();
}

void CompletionsWriter::WriteChatLogprobs(absl::Span<const Row> rows, JsonWriter* json) const {
  const auto add_token = [&](TokenId id, float logprob) {
    const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
    json->Key("token").String(TokenText(id)).Key("logprob").Number(ShownLogprob(logprob));
    json->Key("bytes").BeginArray();
    for (const char byte : text.has_value() ? text->bytes : "") {
      json->Integer(static_cast<unsigned char>(byte));
    }
    json->EndArray();
  };
  json->BeginObject().Key("content").BeginArray();
  for (const Row& row : rows) {
    json->BeginObject();
    add_token(row.id, row.logprobs->logprob);
    json->Key("top_logprobs").BeginArray();
    for (const auto& [id, logprob] : row.logprobs->top) {
      json->BeginObject();
      add_token(id, logprob);
      json->EndObject();
    }
    json->EndArray().EndObject();
  }
  json->EndArray().Key("refusal").Null().EndObject();
}

}  // namespace tandem
