#include "server/api/api_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/json/json_text.h"
#include "base/json/request_fields.h"
#include "base/status_macros.h"
#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kDefaultMaxTokens = 16;  // for completions, as in OpenAI's API
constexpr Limits kLogprobs = {.low = kLogprobLimits.low, .high = kLogprobLimits.high};
constexpr Limits kSequences = {.low = 1, .high = 128};

constexpr char kPromptKinds[] =
    "a string, a list of strings, a list of token ids or a list of such lists";

// ---- Fields of every kind of request ----

void ReadStream(RequestFields* fields, ApiRequest* request) {
  fields->Read("stream", &request->stream);
  const Json* object = fields->Find("stream_options");
  if (object == nullptr) return;
  if (!request->stream) {
    return fields->FailNot("stream_options", *object, "possible without stream");
  }
  RequestFields inner(object, fields->PathOf("stream_options"), fields->ignored());
  inner.Read("include_usage", &request->include_usage);
  inner.Read("include_token_texts", &request->include_token_texts);
  inner.Read("prompt_progress", &request->request.prompt_progress);
  inner.AllowOnly("include_obfuscation", {false});
  inner.AllowOnly("continuous_usage_stats", {false});
  fields->Fail(inner.Finish());
}

void ReadCommon(RequestFields* fields, const ServedModel& model, ApiRequest* request) {
  ReadGeneration(fields, model, &request->request);
  ReadStream(fields, request);
  fields->Read("n", &request->n, kSequences);
  fields->Read("seed", &request->request.seed);
  fields->Read("echo", &request->echo);
  fields->Read("return_tokens_as_token_ids", &request->tokens_as_ids);
  fields->Read("prompt_logprobs", &request->num_prompt_logprobs, kLogprobs);
  if (request->num_prompt_logprobs >= 0 && request->stream) {
    fields->FailNot("prompt_logprobs", request->num_prompt_logprobs, "possible with stream");
  }
  request->constraint_field = ReadConstraint(fields, &request->request);
  ReadPrediction(fields, &request->request);
}

// Sets the log-probabilities that the engine must return for those that the answer shows.
void SetLogprobs(ApiRequest* request) {
  Request& options = request->request;
  options.logprobs.num_top = request->num_logprobs;
  options.prompt_logprobs.num_top = request->num_prompt_logprobs;
  if (request->echo && !request->is_chat) {
    options.prompt_logprobs.num_top = std::max(request->num_logprobs, request->num_prompt_logprobs);
  }
  // best_of ranks the sequences by the log-probabilities of their own tokens.
  const bool chooses = request->best_of > request->n;
  if (chooses) options.logprobs.num_top = std::max(options.logprobs.num_top, 0);
}

// ---- Completions ----

// The fields that decide how the prompt of a completion is encoded.
struct PromptFields {
  bool adds_special_tokens = true;  // those that the tokenizer puts around a text
  std::optional<std::string> suffix{};
};

// The tokens with which code models mark the text before and after the text to write.
struct InfillTokens {
  TokenId prefix, suffix, middle;
};
std::optional<InfillTokens> InfillTokensOf(const Tokenizer& tokenizer) {
  constexpr const char* kSpellings[][3] = {
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen, CodeGemma
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder, Granite
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}};       // SantaCoder
  for (const auto& [prefix, suffix, middle] : kSpellings) {
    const InfillTokens tokens = {.prefix = tokenizer.IdOf(prefix),
                                 .suffix = tokenizer.IdOf(suffix),
                                 .middle = tokenizer.IdOf(middle)};
    if (tokens.prefix >= 0 && tokens.suffix >= 0 && tokens.middle >= 0) return tokens;
  }
  return std::nullopt;
}

// PREFIX text SUFFIX suffix MIDDLE. Special tokens spelled out in `text` are not parsed, because it
// comes from a file.
absl::StatusOr<std::vector<TokenId>> EncodeInfill(const std::string& text,
                                                  const std::string& suffix,
                                                  const ServedModel& model) {
  const std::optional<InfillTokens> tokens = InfillTokensOf(*model.tokenizer);
  if (!tokens.has_value()) {
    return FieldError("suffix", absl::StrCat(Shown(Json(suffix)),
                                             " is not supported: the model's vocabulary has no "
                                             "tokens such as <|fim_prefix|>"));
  }
  ASSIGN_OR_RETURN(const auto before, model.tokenizer->Encode(text, SpecialTokens::kPlain));
  ASSIGN_OR_RETURN(const auto behind, model.tokenizer->Encode(suffix, SpecialTokens::kPlain));
  std::vector<TokenId> ids = {tokens->prefix};
  ids.insert(ids.end(), before.begin(), before.end());
  ids.push_back(tokens->suffix);
  ids.insert(ids.end(), behind.begin(), behind.end());
  ids.push_back(tokens->middle);
  return ids;
}

absl::StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text,
                                                  const PromptFields& fields,
                                                  const ServedModel& model) {
  std::vector<TokenId> ids;
  if (fields.suffix.has_value()) {
    ASSIGN_OR_RETURN(ids, EncodeInfill(text, *fields.suffix, model));
  } else {
    ASSIGN_OR_RETURN(ids, model.tokenizer->Encode(text, SpecialTokens::kParse));
  }
  return fields.adds_special_tokens ? model.tokenizer->WithTemplate(std::move(ids)) : ids;
}

PromptFields ReadPromptFields(RequestFields* fields) {
  PromptFields read;
  fields->Read("add_special_tokens", &read.adds_special_tokens);
  std::string suffix;
  fields->Read("suffix", &suffix);
  if (!suffix.empty()) read.suffix = std::move(suffix);
  return read;
}

// Reads a string, token ids, or a list of either.
absl::Status ReadPrompts(const Json& prompt, const PromptFields& fields, const ServedModel& model,
                         ApiRequest* request) {
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
      absl::StatusOr<std::vector<TokenId>> encoded =
          EncodePrompt(element.get<std::string>(), fields, model);
      // The tokenizer's error names the tokenizer's own argument.
      const bool is_of_suffix = FieldOf(encoded.status()) == "suffix";
      if (!encoded.ok() && !is_of_suffix) return WithField(encoded.status(), "prompt");
      RETURN_IF_ERROR(encoded.status());
      ids = *std::move(encoded);
    } else if (std::optional<std::vector<TokenId>> given = AsTokenIds(element)) {
      if (fields.suffix.has_value()) {
        return FieldError("suffix", "is not possible with a prompt of token ids");
      }
      ids = *std::move(given);
    } else {
      return wrong(element);
    }
    if (ids.empty()) return FieldError("prompt", "is empty");
    request->prompts.push_back(std::move(ids));
  }
  return absl::OkStatus();
}

void ReadBestOf(RequestFields* fields, ApiRequest* request) {
  int best_of = request->n;
  fields->Read("best_of", &best_of, kSequences);
  if (best_of < request->n) fields->FailNot("best_of", best_of, "n or more");
  if (best_of > request->n && request->stream) {
    fields->FailNot("best_of", best_of, "possible with stream, allowed: the same as n");
  }
  request->best_of = best_of;
}

}  // namespace

Request ApiRequest::RequestOf(int sequence) const {
  Request own = request;
  own.prompt_ids = prompts[sequence / sequences_per_prompt()];
  own.sequence = static_cast<uint32_t>(sequence);
  // Later sequences find the pages that the first has fetched.
  if (sequence > 0) own.kv_transfer_params = KvTransferParams();
  return own;
}

absl::Status ApiRequest::WithRequestFieldNames(const absl::Status& status) const {
  const char* prompt = PromptField();
  const char* logprobs = is_chat ? "top_logprobs" : "logprobs";
  const std::pair<absl::string_view, absl::string_view> names[] = {
      {"prompt", prompt},
      {"prompt_ids", prompt},
      {"stop_tokens", "stop_token_ids"},
      {"draft_tokens", "speculation.draft_tokens"},
      {"drafter", "speculation.drafter"},
      {"verifier", "speculation.verifier"},
      {"constraint", constraint_field},
      {"logprobs", logprobs},
      {"prompt_logprobs", num_prompt_logprobs >= 0 ? "prompt_logprobs" : logprobs}};
  const std::string field = FieldOf(status);
  for (const auto& [engines, own] : names) {
    if (field == engines) return InFieldNames(WithField(status, own));
  }
  return InFieldNames(status);
}

absl::Status ApiRequest::InFieldNames(const absl::Status& status) const {
  const std::string field = FieldOf(status);
  for (const auto& [ours, theirs] : field_names) {
    const bool is_it = field == ours || absl::StartsWith(field, absl::StrCat(ours, ".")) ||
                       absl::StartsWith(field, absl::StrCat(ours, "["));
    if (is_it) return WithField(status, absl::StrCat(theirs, field.substr(ours.size())));
  }
  return status;
}

absl::StatusOr<ApiRequest> ParseCompletionRequest(absl::string_view body,
                                                  const ServedModel& model) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  ApiRequest request;
  RequestFields fields(&json, "", model.is_strict ? nullptr : &request.ignored);
  ReadCommon(&fields, model, &request);
  LengthFields lengths;
  lengths.Read(&fields, {"max_tokens"}, /*may_be_zero=*/true);
  fields.Read("logprobs", &request.num_logprobs, kLogprobs);
  ReadBestOf(&fields, &request);
  const PromptFields prompt_fields = ReadPromptFields(&fields);
  const Json* prompt = fields.Find("prompt");
  RefuseFieldsOfOthers(kOnPrompt | kOnAnswer, &fields);
  RETURN_IF_ERROR(fields.Finish());
  if (prompt == nullptr) return MissingField("prompt", kPromptKinds);
  RETURN_IF_ERROR(ReadPrompts(*prompt, prompt_fields, model, &request));
  RETURN_IF_ERROR(CheckSequences(model, request));
  if (lengths.max_tokens == 0 && !request.echo) {
    return FieldError("max_tokens", "must be at least 1 unless `echo` is true, got 0");
  }
  if (request.echo && request.num_logprobs >= 0 && request.stream) {
    return FieldError("echo", "true is not possible with both stream and logprobs");
  }
  SetLogprobs(&request);
  RETURN_IF_ERROR(SetLengths(model, lengths, kDefaultMaxTokens, &request));
  return request;
}

absl::StatusOr<ApiRequest> ParseChatRequest(absl::string_view body, const ServedModel& model,
                                            absl::Time now) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  return ParseChatJson(json, model, now, ApiRequest());
}

absl::StatusOr<ApiRequest> ParseChatJson(const Json& json, const ServedModel& model, absl::Time now,
                                         ApiRequest request) {
  request.is_chat = true;
  RequestFields fields(&json, "", model.is_strict ? nullptr : &request.ignored);
  ReadCommon(&fields, model, &request);
  LengthFields lengths;
  lengths.Read(&fields, {"max_tokens", "max_completion_tokens"}, /*may_be_zero=*/false);
  bool logprobs = false;
  int top_logprobs = 0;
  fields.Read("logprobs", &logprobs);
  fields.Read("top_logprobs", &top_logprobs, kLogprobs);
  if (top_logprobs > 0 && !logprobs) {
    fields.FailNot("top_logprobs", top_logprobs, "possible without logprobs: true");
  }
  if (logprobs) request.num_logprobs = top_logprobs;
  ReasoningFields reasoning;
  reasoning.Read(&fields);
  ChatInput chat;
  chat.now = now;
  ReadChatInput(&fields, &chat);
  IgnoreUnwrittenNames("messages", model, &fields);
  ReadTools(model, &fields, &chat, &request);
  request.has_generic_tools = HasGenericTools(chat, model);
  RefuseFieldsOfOthers(kOnPrompt | kOnAnswer, &fields);
  RETURN_IF_ERROR(fields.Finish());
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, EncodeChatInput(chat, model));
  request.prompts.push_back(std::move(ids));
  if (request.echo) request.echoed = EchoOf(chat);
  RETURN_IF_ERROR(SetReasoning(reasoning, std::move(chat), model, &request));
  RETURN_IF_ERROR(CheckSequences(model, request));
  AddEndTokens(model, &request.request);
  SetLogprobs(&request);
  RETURN_IF_ERROR(SetLengths(model, lengths, std::numeric_limits<int>::max(), &request));
  return request;
}

}  // namespace tandem
