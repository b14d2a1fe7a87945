#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/json/json_writer.h"
#include "base/utf8.h"
#include "engine/report_json.h"
#include "server/api/answer_writer.h"
#include "server/api/api_error.h"
#include "tandem/answer_reader.h"
#include "tandem/detokenizer.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

using Json = JsonValue;

// The value in OpenAI's answers for a probability of zero.
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

Json ProgressJson(const PromptProgress& progress) {
  return {{"total", progress.total},
          {"cached", progress.cached},
          {"processed", progress.processed},
          {"time_ms", absl::ToInt64Milliseconds(progress.time)}};
}

double MeanLogprob(const Completion& completion) {
  double sum = 0;
  for (const TokenLogprobs& row : completion.logprobs) sum += row.logprob;
  return completion.logprobs.empty() ? 0 : sum / static_cast<double>(completion.logprobs.size());
}

// An answer that ends with tool calls has "tool_calls" as its reason.
std::string ReasonOf(FinishReason reason, int num_calls) {
  return reason == FinishReason::kStop && num_calls > 0 ? "tool_calls"
                                                        : std::string(NameOf(reason));
}

// Estimates the size of the answer's JSON, because a growing string doubles its memory.
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

// A token whose log-probability is shown. `logprobs` is null for the first token of a prompt, which
// has none.
struct TokenRow {
  TokenId id = 0;
  const TokenLogprobs* logprobs = nullptr;
};

class CompletionsWriter final : public AnswerWriter {
 public:
  CompletionsWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
      : AnswerWriter(request, model, std::move(stamp)), progress_(request->num_sequences()) {}

  std::string FullAnswer(absl::Span<const Completion> completions) override {
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
    AddReports(ReportsOf(completions), &json);
    json.EndObject();
    return text;
  }

  // A choice opens with a chat's role, or with the echoed prompt.
  std::string FirstEvents() override {
    std::string events;
    if (!request_->is_chat && !request_->echo) return events;
    for (int i = 0; i < request_->num_sequences(); ++i) {
      if (request_->reading.TakesApart()) progress_[i].reader.emplace(request_->reading);
      events += ChunkEvent(i, "", nullptr, {}, [&](JsonWriter* json) { AddOpening(i, json); });
    }
    return events;
  }

  std::string PieceEvents(int choice, const OwnedPiece& piece) override {
    std::optional<AnswerReader>& reader = progress_[choice].reader;
    const AnswerDelta delta =
        reader.has_value() ? reader->Push(piece.text) : AnswerDelta{.content = piece.text};
    return ChunkEvent(choice, "", &piece, {},
                      [&](JsonWriter* json) { AddDelta(choice, delta, json); });
  }

  std::string EndEvents(int choice, FinishReason reason,
                        absl::Span<const Completion> completions) override {
    std::optional<AnswerReader>& reader = progress_[choice].reader;
    const AnswerDelta delta = reader.has_value() ? reader->Finish() : AnswerDelta();
    const int num_calls = reader.has_value() ? reader->num_calls() : 0;
    return ChunkEvent(choice, ReasonOf(reason, num_calls), nullptr, completions,
                      [&](JsonWriter* json) { AddDelta(choice, delta, json); });
  }

  std::string LastEvents(absl::Span<const Completion> completions) override {
    if (!request_->include_usage) return kDoneEvent;
    return Event([&](JsonWriter* json) {
             AddEnvelope(/*is_chunk=*/true, json);
             json->Key("choices").BeginArray().EndArray().Key("usage").Value(UsageOf(completions));
             AddReports(ReportsOf(completions), json);
           }) +
           kDoneEvent;
  }

  std::string ErrorEvents(const absl::Status& status) override {
    return tandem::ErrorEvents(ErrorResponse(status), ErrorForm::kOpenAi);
  }

 private:
  // The state of a choice: how far its text has got, for the text offsets of log-probabilities.
  struct Progress {
    std::unique_ptr<Detokenizer> detokenizer;
    int num_characters = 0;
    std::unique_ptr<Detokenizer> token_texts{};  // for include_token_texts
    std::optional<AnswerReader> reader{};        // for streams with more than content
  };

  // ---- Members of the currently open object ----

  void AddEnvelope(bool is_chunk, JsonWriter* json) const {
    const char* object = !request_->is_chat ? "text_completion"
                         : is_chunk         ? "chat.completion.chunk"
                                            : "chat.completion";
    json->Key("id").String(stamp_.id).Key("object").String(object);
    json->Key("created").Integer(stamp_.created).Key("model").String(model_->name);
    json->Key("system_fingerprint").String(model_->fingerprint);
  }

  static void AddReports(const Json& reports, JsonWriter* json) {
    for (const auto& [name, report] : reports.items()) json->Key(name).Value(report);
  }

  Json UsageOf(absl::Span<const Completion> completions) const {
    const CacheUse prompts = CacheUse::Of(*request_, completions);
    int64_t completion_tokens = 0;
    int64_t reasoning_tokens = 0;
    RoundStats stats;
    for (const Completion& completion : completions) {
      completion_tokens += completion.token_ids.size();
      reasoning_tokens += ReasoningTokensOf(completion);
      stats += completion.stats;
    }
    const RoundStats::SourceCounts& predicted = stats.Of(DraftSource::kPredicted);
    return {{"prompt_tokens", prompts.prompt_tokens},
            {"completion_tokens", completion_tokens},
            {"total_tokens", prompts.prompt_tokens + completion_tokens},
            {"prompt_tokens_details", prompts.Details()},
            {"completion_tokens_details",
             {{"reasoning_tokens", reasoning_tokens},
              {"accepted_prediction_tokens", predicted.accepted},
              {"rejected_prediction_tokens", predicted.proposed - predicted.accepted}}}};
  }

  // ---- Whole answers ----

  // Returns the indices of the sequences to answer with: for each prompt the n with the highest
  // mean log-probability, likeliest first. If n is all of them, keeps their order.
  std::vector<int> BestOf(absl::Span<const Completion> completions) const {
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

  Json CallsJson(int choice, const AnswerDelta& delta, bool is_chunk) const {
    Json calls = Json::array();
    for (const AnswerDelta::Call& call : delta.calls) {
      Json json = {{"function", {{"arguments", call.arguments}}}};
      if (is_chunk) json["index"] = call.index;
      if (!call.name.empty()) {
        json["id"] = CallIdOf(choice, call.index);
        json["type"] = "function";
        json["function"]["name"] = call.name;
      }
      calls.push_back(std::move(json));
    }
    return calls;
  }

  void WriteMessage(int choice, const Completion& completion, JsonWriter* json) const {
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

  void WriteChoice(int choice, const Completion& completion, JsonWriter* json) {
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
    AddChoiceLogprobs(completion.choice_logprobs, json);
    if (!request_->is_chat && request_->num_prompt_logprobs >= 0) {
      WritePromptLogprobs(choice, completion, json);
    }
    json->EndObject();
  }

  // Returns the shown tokens of a choice of the whole answer, those of an echoed prompt first.
  std::vector<TokenRow> RowsOf(int choice, const Completion& completion) const {
    std::vector<TokenRow> rows;
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

  // ---- Events ----

  static std::string Event(absl::FunctionRef<void(JsonWriter*)> add_members) {
    std::string text = "data: ";
    JsonWriter json(&text);
    json.BeginObject();
    add_members(&json);
    json.EndObject();
    return text + "\n\n";
  }

  // Writes an event about one choice. `add_said` writes its "text" or "delta". `piece` is the piece
  // that caused the event, or null. `completions` is empty except for the last choice of the
  // stream.
  std::string ChunkEvent(int choice, const std::string& finish_reason, const OwnedPiece* piece,
                         absl::Span<const Completion> completions,
                         absl::FunctionRef<void(JsonWriter*)> add_said) {
    return Event([&](JsonWriter* json) {
      AddEnvelope(/*is_chunk=*/true, json);
      json->Key("choices").BeginArray().BeginObject().Key("index").Integer(choice);
      json->Key("finish_reason");
      finish_reason.empty() ? json->Null() : json->String(finish_reason);
      add_said(json);
      std::vector<TokenRow> rows;
      if (piece == nullptr) {
        AddTokens({}, "", json);
      } else {
        AddTokens(piece->token_ids, piece->provenance, json);
        if (request_->include_token_texts) AddTokenTexts(choice, *piece, json);
        for (const TokenLogprobs& row : piece->logprobs) rows.push_back({row.id, &row});
      }
      AddLogprobs(choice, rows, json);
      if (piece != nullptr) AddChoiceLogprobs(piece->choice_logprobs, json);
      json->EndObject().EndArray();
      if (request_->include_usage) json->Key("usage").Null();
      if (piece != nullptr) json->Key("round").Value(RoundJson(piece->round));
      if (piece != nullptr && piece->prompt_progress.has_value()) {
        json->Key("prompt_progress").Value(ProgressJson(*piece->prompt_progress));
      }
      if (completions.empty()) return;
      Json reports = ReportsOf(completions);
      // Tools discard counts that come twice; as in vLLM the chunk of the usage has them.
      if (request_->include_usage) reports.erase("metrics");
      AddReports(reports, json);
    });
  }

  void AddOpening(int choice, JsonWriter* json) const {
    if (!request_->is_chat) {
      json->Key("text").String(PromptText(choice));
      return;
    }
    json->Key("delta").BeginObject().Key("role").String("assistant");
    json->Key("content").String(request_->echoed);
    const std::string& reasoning = request_->echoed_reasoning;
    if (!reasoning.empty()) json->Key("reasoning_content").String(reasoning);
    json->EndObject();
  }

  void AddDelta(int choice, const AnswerDelta& delta, JsonWriter* json) const {
    if (!request_->is_chat) {
      json->Key("text").String(delta.content);
      return;
    }
    json->Key("delta").BeginObject();
    if (!delta.reasoning.empty()) json->Key("reasoning_content").String(delta.reasoning);
    if (!delta.content.empty()) json->Key("content").String(delta.content);
    if (!delta.calls.empty()) json->Key("tool_calls").Value(CallsJson(choice, delta, true));
    json->EndObject();
  }

  // ---- Tokens ----

  const std::vector<TokenId>& PromptOf(int choice) const {
    return request_->prompts[choice / request_->n];
  }

  std::string PromptText(int choice) const {
    return model_->tokenizer->Decode(PromptOf(choice), request_->request.skip_special_tokens);
  }

  std::unique_ptr<Detokenizer> NewDetokenizer(absl::Span<const TokenId> before) const {
    return Detokenizer::New(model_->tokenizer, before, request_->request.skip_special_tokens,
                            request_->request.shown_special_tokens);
  }

  // Returns the token's text, or "bytes:\xe2\x82" if it is not valid UTF-8 by itself.
  std::string TokenText(TokenId id) const {
    const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
    if (!text.has_value()) return "";
    if (FindInvalidUtf8(text->bytes) == std::string_view::npos) return std::string(text->bytes);
    std::string shown = "bytes:";
    for (const char byte : text->bytes) {
      shown += Format("\\x%02x", static_cast<unsigned char>(byte));
    }
    return shown;
  }
  // Returns the name of a token among log-probabilities.
  std::string LogprobName(TokenId id) const {
    return request_->tokens_as_ids ? absl::StrCat("token_id:", id) : TokenText(id);
  }

  void AddTokens(absl::Span<const TokenId> ids, std::string_view provenance,
                 JsonWriter* json) const {
    json->Key("token_ids").BeginArray();
    for (const TokenId id : ids) json->Integer(id);
    json->EndArray().Key("provenance").String(provenance);
  }

  // Writes the text that each token completes, and for each correction the text of the draft that
  // it ended. A token that only begins a character has an empty text.
  void AddTokenTexts(int choice, const OwnedPiece& piece, JsonWriter* json) {
    std::unique_ptr<Detokenizer>& detokenizer = progress_[choice].token_texts;
    if (detokenizer == nullptr) {
      detokenizer = NewDetokenizer(PromptOf(choice));
    }
    std::vector<std::string> rejected_texts;
    json->Key("token_texts").BeginArray();
    for (size_t i = 0; i < piece.token_ids.size(); ++i) {
      if (piece.provenance[i] == static_cast<char>(Provenance::kCorrection) &&
          rejected_texts.size() < piece.rejected.size()) {
        const std::unique_ptr<Detokenizer> draft = detokenizer->Clone();
        std::string text;
        for (const TokenId id : piece.rejected[rejected_texts.size()]) text += draft->Push(id);
        rejected_texts.push_back(text + draft->Flush());
      }
      json->String(detokenizer->Push(piece.token_ids[i]));
    }
    json->EndArray().Key("rejected_texts").BeginArray();
    for (const std::string& text : rejected_texts) json->String(text);
    json->EndArray();
  }

  void AddLogprobs(int choice, absl::Span<const TokenRow> rows, JsonWriter* json) {
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

  static void AddChoiceLogprobs(absl::Span<const ChoiceLogprob> choices, JsonWriter* json) {
    if (!choices.empty()) json->Key("choice_logprobs").Value(ChoiceLogprobsJson(choices));
  }

  void WriteCompletionLogprobs(Progress* progress, absl::Span<const TokenRow> rows,
                               JsonWriter* json) const {
    json->BeginObject().Key("tokens").BeginArray();
    for (const TokenRow& row : rows) json->String(LogprobName(row.id));
    json->EndArray().Key("token_logprobs").BeginArray();
    for (const TokenRow& row : rows) {
      row.logprobs == nullptr ? json->Null() : json->Number(ShownLogprob(row.logprobs->logprob));
    }
    json->EndArray().Key("top_logprobs").BeginArray();
    for (const TokenRow& row : rows) WriteTopLogprobs(row.logprobs, json);
    json->EndArray().Key("text_offset").BeginArray();
    for (const TokenRow& row : rows) {
      json->Integer(progress->num_characters);
      progress->num_characters += NumCharacters(progress->detokenizer->Push(row.id));
    }
    json->EndArray().EndObject();
  }

  // Keys are texts, which several tokens may share, or name ids.
  void WriteTopLogprobs(const TokenLogprobs* logprobs, JsonWriter* json) const {
    if (logprobs == nullptr) {
      json->Null();
      return;
    }
    std::map<std::string, float> by_text;
    // The engine may have returned more for a prompt, because of prompt_logprobs.
    const size_t num_shown = std::min<size_t>(logprobs->top.size(), request_->num_logprobs);
    for (const auto& [id, logprob] : absl::MakeConstSpan(logprobs->top).first(num_shown)) {
      by_text[LogprobName(id)] = logprob;
    }
    if (!by_text.empty()) by_text[LogprobName(logprobs->id)] = logprobs->logprob;
    json->BeginObject();
    for (const auto& [text, logprob] : by_text) json->Key(text).Number(ShownLogprob(logprob));
    json->EndObject();
  }

  // In vLLM's format: keyed by token id, the prompt's own token last if it is not among the
  // likeliest.
  void WritePromptLogprobs(int choice, const Completion& completion, JsonWriter* json) const {
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

  void WriteChatLogprobs(absl::Span<const TokenRow> rows, JsonWriter* json) const {
    const auto add_token = [&](TokenId id, float logprob) {
      const std::optional<Tokenizer::TokenText> text = model_->tokenizer->TextOf(id, false);
      json->Key("token").String(LogprobName(id)).Key("logprob").Number(ShownLogprob(logprob));
      json->Key("bytes").BeginArray();
      for (const char byte : text.has_value() ? text->bytes : "") {
        json->Integer(static_cast<unsigned char>(byte));
      }
      json->EndArray();
    };
    json->BeginObject().Key("content").BeginArray();
    for (const TokenRow& row : rows) {
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

  std::vector<Progress> progress_;  // by choice
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionsWriter(const ApiRequest* request,
                                                    const ServedModel* model, AnswerStamp stamp) {
  return std::make_unique<CompletionsWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
