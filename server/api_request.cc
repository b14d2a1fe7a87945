#include "server/api_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/field_error.h"
#include "base/status_macros.h"
#include "model/formats/json_text.h"
#include "nlohmann/json.hpp"
#include "server/api_error.h"
#include "server/request_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultMaxTokens = 16;  // of completions, as OpenAI's
constexpr int kMostStops = 16;
constexpr size_t kMostBytesPerStop = 1000;
constexpr int kMostLogprobs = 100;
constexpr int kMostTokens = std::numeric_limits<int>::max();

constexpr char kPromptKinds[] =
    "a string, a list of strings, a list of token ids or a list of such";

std::optional<TokenId> AsTokenId(const Json& json) {
  const bool is_id =
      json.is_number_unsigned() && json <= uint64_t{std::numeric_limits<TokenId>::max()};
  return is_id ? std::optional<TokenId>(json.get<TokenId>()) : std::nullopt;
}

// A list of token ids; nothing if it is something else.
std::optional<std::vector<TokenId>> AsTokenIds(const Json& json) {
  std::vector<TokenId> ids;
  if (!json.is_array()) return std::nullopt;
  for (const Json& element : json) {
    const std::optional<TokenId> id = AsTokenId(element);
    if (!id.has_value()) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

// ---- Fields that both kinds of request have ----

void ReadSampling(RequestFields* fields, SamplingParams* sampling) {
  fields->Read("temperature", &sampling->temperature);
  fields->Read("top_p", &sampling->top_p);
  fields->Read("top_k", &sampling->top_k, 0);
  fields->Read("min_p", &sampling->min_p);
  fields->Read("repetition_penalty", &sampling->repetition_penalty);
  fields->Read("frequency_penalty", &sampling->frequency_penalty);
  fields->Read("presence_penalty", &sampling->presence_penalty);
  fields->Read("min_tokens", &sampling->min_tokens, 0);
  const Json* bias = fields->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    return fields->FailNot("logit_bias", *bias, "an object of token ids and biases");
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = 0;
    // "5", and neither "05" nor "+5": a token has one key.
    if (!absl::SimpleAtoi(key, &id) || key != absl::StrCat(id)) {
      return fields->FailNot("logit_bias", key, "a token id in digits alone");
    }
    if (!value.is_number()) return fields->FailNot("logit_bias", value, "a number");
    sampling->logit_bias.emplace_back(id, value.get<float>());
  }
}

void ReadStops(RequestFields* fields, Request* options) {
  if (const Json* stop = fields->Find("stop"); stop != nullptr) {
    const bool is_one = stop->is_string();
    if (!is_one && !stop->is_array()) {
      return fields->FailNot("stop", *stop, "a string or a list of strings");
    }
    const absl::Span<const Json> list =
        is_one ? absl::MakeConstSpan(stop, 1) : stop->get_ref<const Json::array_t&>();
    if (list.size() > kMostStops) {
      return fields->FailNot("stop", list.size(), absl::StrCat("at most ", kMostStops, " strings"));
    }
    for (const Json& text : list) {
      if (!text.is_string() || text == "") {
        return fields->FailNot("stop", text, "a string that is not empty");
      }
      options->stop.push_back(text.get<std::string>());
      if (options->stop.back().size() > kMostBytesPerStop) {
        return fields->FailNot("stop", text, absl::StrCat("at most ", kMostBytesPerStop, " bytes"));
      }
    }
  }
  if (const Json* stop = fields->Find("stop_token_ids"); stop != nullptr) {
    const auto ids = AsTokenIds(*stop);
    if (!ids.has_value()) return fields->FailNot("stop_token_ids", *stop, "a list of token ids");
    options->stop_tokens = *ids;
  }
  fields->Read("ignore_eos", &options->ignore_eos);
}

// "speculation": {"draft_tokens": 4 or "auto", "drafter": ..., "verifier": ...}
void ReadSpeculation(RequestFields* fields, const ServedModel& model, Request* options) {
  const Json* object = fields->Find("speculation");
  if (object == nullptr) return;
  RequestFields inner(object, fields->PathOf("speculation"));
  const Json* draft_tokens = inner.Find("draft_tokens");
  if (draft_tokens != nullptr && *draft_tokens == "auto") {
    options->draft_tokens = kAutoDraftTokens;
  } else if (draft_tokens != nullptr) {
    const bool is_count = draft_tokens->is_number_unsigned() && *draft_tokens <= kMaxDraftTokens;
    if (is_count) options->draft_tokens = draft_tokens->get<int>();
    const std::string allowed = absl::StrCat("\"auto\" or a number from 0 to ", kMaxDraftTokens);
    if (!is_count) inner.FailNot("draft_tokens", *draft_tokens, allowed);
  }
  std::string drafter = model.drafter;
  inner.Read("drafter", &drafter);
  if (drafter != model.drafter && drafter != "none") {
    inner.FailNot(
        "drafter", drafter,
        absl::StrCat("what the server runs, ",
                     model.drafter == "none" ? "" : absl::StrCat(model.drafter, " or "), "none"));
  }
  if (drafter == "none") {
    if (options->draft_tokens.value_or(0) > 0) {
      inner.FailNot("draft_tokens", *draft_tokens, "possible without a drafter, allowed: 0");
    }
    options->draft_tokens = 0;
  }
  std::string verifier;
  inner.Read("verifier", &verifier);
  if (!verifier.empty()) {
    const absl::StatusOr<AcceptanceRule> rule = ParseAcceptanceRule(verifier);
    if (rule.ok()) {
      options->verifier = *rule;
    } else {
      inner.Fail(WithField(rule.status(), inner.PathOf("verifier")));
    }
  }
  fields->Fail(inner.Finish());
}

void ReadStream(RequestFields* fields, ApiRequest* request) {
  fields->Read("stream", &request->stream);
  const Json* object = fields->Find("stream_options");
  if (object == nullptr) return;
  if (!request->stream)
    return fields->FailNot("stream_options", *object, "possible without stream");
  RequestFields inner(object, fields->PathOf("stream_options"));
  inner.Read("include_usage", &request->include_usage);
  inner.Read("include_token_texts", &request->include_token_texts);
  inner.AllowOnly("include_obfuscation", {false});
  fields->Fail(inner.Finish());
}

void ReadCommon(RequestFields* fields, const ServedModel& model, ApiRequest* request) {
  std::string name = model.name;
  fields->Read("model", &name);
  fields->Fail(CheckModelName(name, model));
  ReadSampling(fields, &request->options.sampling);
  ReadStops(fields, &request->options);
  ReadSpeculation(fields, model, &request->options);
  ReadStream(fields, request);
  fields->Read("n", &request->n, 1, 128);
  fields->Read("seed", &request->options.seed);
  fields->Ignore("user");
  fields->Ignore("metadata");
}

// ---- Lengths ----

// The tokens that each sequence may write, by what the whole answer may hold.
absl::StatusOr<int> RoomInAnswer(const ServedModel& model, const ApiRequest& request) {
  const Request& options = request.options;
  int64_t echoed_tokens = 0;
  for (const auto& prompt : request.prompts) {
    if (request.echo) echoed_tokens += request.n * static_cast<int64_t>(prompt.size());
  }
  const int64_t left =
      model.max_answer_bytes - echoed_tokens * BytesPerToken(options.prompt_logprobs);
  const int64_t room = left / (request.num_sequences() * BytesPerToken(options.logprobs));
  if (left > 0 && room > 0) return static_cast<int>(std::min<int64_t>(room, kMostTokens));
  const bool has_logprobs = options.logprobs.num_top >= 0;
  const char* field = !has_logprobs ? "n" : request.is_chat ? "top_logprobs" : "logprobs";
  return FieldError(
      field, absl::StrCat("the answer's ", request.num_sequences(), " sequences with ",
                          1 + options.logprobs.num_top, " log-probabilities a token are more than ",
                          model.max_answer_bytes, " bytes, before their first token"));
}

// The prompt and `max_tokens` in the context and the answer; without (0) as many as fit in both, at
// most `otherwise`.
absl::Status SetLengths(const ServedModel& model, absl::string_view max_tokens_field,
                        int max_tokens, int otherwise, ApiRequest* request) {
  const int longest = model.MaxLength();
  int64_t prompt_length = 0;
  for (const auto& prompt : request->prompts) {
    prompt_length = std::max(prompt_length, static_cast<int64_t>(prompt.size()));
  }
  if (prompt_length >= longest) {
    return WithCode(
        FieldError(request->is_chat ? "messages" : "prompt",
                   absl::StrCat("has ", prompt_length, " tokens, and the model's context of ",
                                longest, " must hold one more")),
        "context_length_exceeded");
  }
  if (prompt_length + max_tokens > longest) {
    return WithCode(
        FieldError(max_tokens_field, absl::StrCat(max_tokens, " and ", prompt_length,
                                                  " tokens of the prompt are more than the model's "
                                                  "context of ",
                                                  longest)),
        "context_length_exceeded");
  }
  ASSIGN_OR_RETURN(const int room, RoomInAnswer(model, *request));
  if (max_tokens > room) {
    return FieldError(max_tokens_field,
                      absl::StrCat(max_tokens, " for each of ", request->num_sequences(),
                                   " sequences with ", 1 + request->options.logprobs.num_top,
                                   " log-probabilities a token are an answer of more than ",
                                   model.max_answer_bytes, " bytes, allowed: ", room));
  }
  const int fitting = std::min({longest - static_cast<int>(prompt_length), room, otherwise});
  request->options.max_tokens = max_tokens > 0 ? max_tokens : fitting;
  return absl::OkStatus();
}

absl::Status CheckSequences(const ServedModel& model, const ApiRequest& request) {
  if (request.prompts.size() * request.n <= static_cast<size_t>(model.max_sequences)) {
    return absl::OkStatus();
  }
  return FieldError("n", absl::StrCat(request.n, " times ", request.prompts.size(),
                                      " prompts are more sequences than a request may have here, ",
                                      model.max_sequences));
}

// ---- Completions ----

absl::StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text,
                                                  const ServedModel& model) {
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, model.tokenizer->Encode(text, SpecialTokens::kParse));
  return model.tokenizer->WithTemplate(std::move(ids));
}

// A string, ids, or a list of either.
absl::Status ReadPrompts(const Json& prompt, const ServedModel& model, ApiRequest* request) {
  const auto wrong = [](const Json& found) {
    return FieldError("prompt", absl::StrCat(Shown(found), " is not ", kPromptKinds));
  };
  const bool is_one =
      prompt.is_string() || (prompt.is_array() && !prompt.empty() && prompt[0].is_number());
  if (!is_one && (!prompt.is_array() || prompt.empty())) return wrong(prompt);
  const absl::Span<const Json> list =
      is_one ? absl::MakeConstSpan(&prompt, 1) : prompt.get_ref<const Json::array_t&>();
  for (const Json& element : list) {
    std::vector<TokenId> ids;
    if (element.is_string()) {
      ASSIGN_OR_RETURN(ids, EncodePrompt(element.get<std::string>(), model));
    } else if (std::optional<std::vector<TokenId>> given = AsTokenIds(element)) {
      ids = *std::move(given);
    } else {
      return wrong(element);
    }
    if (ids.empty()) return FieldError("prompt", "is empty");
    request->prompts.push_back(std::move(ids));
  }
  return absl::OkStatus();
}

// ---- Chat ----

// A string, or a list of {"type": "text", "text": ...}.
std::string ReadContent(RequestFields* fields, bool may_lack) {
  const Json* content = fields->Find("content");
  if (content == nullptr) {
    if (!may_lack) fields->FailNot("content", nullptr, "a string or a list of text parts");
    return "";
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    fields->FailNot("content", *content, "a string or a list of text parts");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    RequestFields part(&(*content)[i], fields->PathOf(absl::StrCat("content[", i, "]")));
    std::string type;
    part.Read("type", &type);
    if (part.ok() && type != "text") part.FailNot("type", type, "text; other parts are not served");
    std::string words;
    part.Read("text", &words);
    text += words;
    fields->Fail(part.Finish());
  }
  return text;
}

absl::StatusOr<std::vector<ChatMessage>> ReadMessages(const Json* list) {
  if (list == nullptr || !list->is_array() || list->empty()) {
    return FieldError("messages", absl::StrCat(list == nullptr ? "null" : Shown(*list),
                                               " is not a list of messages"));
  }
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) {
    RequestFields fields(&(*list)[i], absl::StrCat("messages[", i, "]"));
    ChatMessage message;
    fields.Read("role", &message.role);
    if (message.role == "developer") message.role = "system";
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fields.FailNot("role", message.role, "one of system, developer, user, assistant");
    }
    message.content = ReadContent(&fields, /*may_lack=*/false);
    fields.AllowOnly("name", {});
    for (const char* of_answers : {"tool_calls", "annotations"}) {
      fields.AllowOnly(of_answers, {Json::array()});
    }
    for (const char* of_answers : {"refusal", "function_call", "audio"}) {
      fields.AllowOnly(of_answers, {});
    }
    RETURN_IF_ERROR(fields.Finish());
    messages.push_back(std::move(message));
  }
  return messages;
}

absl::StatusOr<std::vector<TokenId>> EncodeMessages(const std::vector<ChatMessage>& messages,
                                                    const ServedModel& model, absl::Time now) {
  if (!model.chat_template.ok()) {
    return FieldError("messages",
                      absl::StrCat("the model has no chat template that this server knows: ",
                                   model.chat_template.status().message()));
  }
  return EncodeChat(*model.chat_template, *model.tokenizer, ChatInputOf(messages, now));
}

void RefuseUnservedChatFields(RequestFields* fields) {
  fields->AllowOnly("tools", {Json::array()});
  fields->AllowOnly("tool_choice", {"none", "auto"});
  fields->AllowOnly("parallel_tool_calls", {true, false});
  fields->AllowOnly("functions", {Json::array()});
  fields->AllowOnly("function_call", {"none"});
  fields->AllowOnly("response_format", {Json{{"type", "text"}}});
  fields->AllowOnly("modalities", {Json::array({"text"})});
  fields->AllowOnly("audio", {});
  fields->AllowOnly("prediction", {});
  fields->AllowOnly("reasoning_effort", {"none"});
  fields->AllowOnly("web_search_options", {});
  fields->AllowOnly("store", {false});
  fields->AllowOnly("service_tier", {"auto", "default"});
}

// The tokens that end an answer by the template, where the model's own list lacks them.
void AddEndTokens(const ServedModel& model, Request* options) {
  if (options->ignore_eos || !model.chat_template.ok()) return;
  const std::vector<TokenId> ends = EndTokenIds(*model.chat_template, *model.tokenizer);
  options->stop_tokens.insert(options->stop_tokens.end(), ends.begin(), ends.end());
}

}  // namespace

ServedModel ServedModel::Of(const Engine& engine, const std::string& name, int max_sequences,
                            int64_t max_answer_bytes) {
  const ModelInfo target = engine.target_info();
  return {.name = name,
          .tokenizer = &engine.tokenizer(),
          .chat_template = ChatTemplate::Load(target.path),
          .drafter = std::string(NameOf(engine.drafter())),
          .context_length = target.context_length,
          .cache_tokens = int64_t{target.num_pages} * target.page_size,
          .max_sequences = max_sequences,
          .max_answer_bytes = max_answer_bytes};
}

bool ServedModel::HasChatTemplate() const {
  return chat_template.ok() && !chat_template->is_plain();
}

int ServedModel::MaxLength() const {
  return static_cast<int>(std::min<int64_t>(context_length, cache_tokens));
}

Request ApiRequest::RequestOf(int choice) const {
  Request request = options;
  request.prompt_ids = prompts[choice / n];
  request.sequence = static_cast<uint32_t>(choice);
  return request;
}

absl::Status ApiRequest::InItsNames(const absl::Status& status) const {
  const char* prompt = is_chat ? "messages" : "prompt";
  const char* logprobs = is_chat ? "top_logprobs" : "logprobs";
  const std::pair<absl::string_view, absl::string_view> names[] = {
      {"prompt", prompt},
      {"prompt_ids", prompt},
      {"stop_tokens", "stop_token_ids"},
      {"draft_tokens", "speculation.draft_tokens"},
      {"verifier", "speculation.verifier"},
      {"logprobs", logprobs},
      {"prompt_logprobs", logprobs}};
  const std::string field = FieldOf(status);
  for (const auto& [engines, own] : names) {
    if (field == engines) return WithField(status, own);
  }
  return status;
}

absl::Status CheckModelName(const std::string& name, const ServedModel& model) {
  if (name == model.name) return absl::OkStatus();
  return WithCode(
      FieldError("model", absl::StrCat(Quoted(name), " is not served here, allowed: ", model.name)),
      "model_not_found", 404);
}

absl::StatusOr<ApiRequest> ParseCompletionRequest(absl::string_view body,
                                                  const ServedModel& model) {
  ASSIGN_OR_RETURN(const JsonDocument json, ParseJsonDocument(body, "body"));
  RequestFields fields(&*json, "");
  ApiRequest request;
  ReadCommon(&fields, model, &request);
  int max_tokens = -1;
  fields.Read("max_tokens", &max_tokens, 0);
  fields.Read("logprobs", &request.options.logprobs.num_top, 0, kMostLogprobs);
  fields.Read("echo", &request.echo);
  int best_of = request.n;
  fields.Read("best_of", &best_of, 1, 128);
  if (best_of != request.n) {
    fields.FailNot("best_of", best_of, "supported, allowed: null, or the same as n");
  }
  fields.AllowOnly("suffix", {""});
  const Json* prompt = fields.Find("prompt");
  RETURN_IF_ERROR(fields.Finish());
  if (prompt == nullptr) {
    return FieldError("prompt", absl::StrCat("null is not ", kPromptKinds));
  }
  RETURN_IF_ERROR(WithField(ReadPrompts(*prompt, model, &request), "prompt"));
  RETURN_IF_ERROR(CheckSequences(model, request));
  if (max_tokens == 0 && !request.echo) {
    return FieldError("max_tokens", "0 is not 1 or more, as it is without echo");
  }
  if (request.echo && request.options.logprobs.num_top >= 0) {
    if (request.stream) {
      return FieldError("echo", "true is not possible with both stream and logprobs");
    }
    request.options.prompt_logprobs = request.options.logprobs;
  }
  // For a length of 0 there must be room for 1 as well.
  const int given = max_tokens == 0 ? 1 : std::max(max_tokens, 0);
  RETURN_IF_ERROR(SetLengths(model, "max_tokens", given, kDefaultMaxTokens, &request));
  if (max_tokens == 0) request.options.max_tokens = 0;
  return request;
}

absl::StatusOr<ApiRequest> ParseChatRequest(absl::string_view body, const ServedModel& model,
                                            absl::Time now) {
  ASSIGN_OR_RETURN(const JsonDocument json, ParseJsonDocument(body, "body"));
  RequestFields fields(&*json, "");
  ApiRequest request;
  request.is_chat = true;
  ReadCommon(&fields, model, &request);
  int max_tokens = 0;  // as many as fit
  int max_completion_tokens = 0;
  fields.Read("max_tokens", &max_tokens, 1);
  fields.Read("max_completion_tokens", &max_completion_tokens, 1);
  if (max_tokens > 0 && max_completion_tokens > 0 && max_tokens != max_completion_tokens) {
    fields.FailNot("max_tokens", max_tokens, "the same as max_completion_tokens");
  }
  bool logprobs = false;
  int top_logprobs = 0;
  fields.Read("logprobs", &logprobs);
  fields.Read("top_logprobs", &top_logprobs, 0, kMostLogprobs);
  if (top_logprobs > 0 && !logprobs) {
    fields.FailNot("top_logprobs", top_logprobs, "possible without logprobs: true");
  }
  if (logprobs) request.options.logprobs.num_top = top_logprobs;
  RefuseUnservedChatFields(&fields);
  const Json* list = fields.Find("messages");
  RETURN_IF_ERROR(fields.Finish());
  ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages, ReadMessages(list));
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeMessages(messages, model, now));
  request.prompts.push_back(std::move(ids));
  RETURN_IF_ERROR(CheckSequences(model, request));
  AddEndTokens(model, &request.options);
  const bool is_new_name = max_completion_tokens > 0;
  RETURN_IF_ERROR(SetLengths(model, is_new_name ? "max_completion_tokens" : "max_tokens",
                             is_new_name ? max_completion_tokens : max_tokens, kMostTokens,
                             &request));
  return request;
}

}  // namespace tandem
