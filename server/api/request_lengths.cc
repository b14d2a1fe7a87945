#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api/api_error.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr char kOneOrAsManyAsFit[] = "at least 1, or -1 for as many as fit";

// Returns the number of tokens that each sequence may write within the size limit of the answer.
absl::StatusOr<int> RoomInAnswer(const ServedModel& model, const ApiRequest& request) {
  constexpr int64_t kMaxTokens = std::numeric_limits<int>::max();
  const Request& options = request.request;
  int64_t shown_tokens = 0;
  for (const auto& prompt : request.prompts) {
    if (request.ShowsPrompts()) shown_tokens += request.n * static_cast<int64_t>(prompt.size());
  }
  const int64_t left =
      model.max_answer_bytes - shown_tokens * BytesPerToken(options.prompt_logprobs);
  const int64_t room = left / (request.num_sequences() * BytesPerToken(options.logprobs));
  if (left > 0 && room > 0) return static_cast<int>(std::min(room, kMaxTokens));
  const bool has_logprobs = options.logprobs.num_top >= 0;
  const char* field = request.num_prompt_logprobs >= 0 ? "prompt_logprobs"
                      : !has_logprobs                  ? "n"
                      : request.is_chat                ? "top_logprobs"
                                                       : "logprobs";
  return FieldError(
      field,
      absl::StrCat("the answer's ", request.num_sequences(), " sequences with ",
                   1 + options.logprobs.num_top, " log-probabilities a token need more than ",
                   model.max_answer_bytes, " bytes even before their first token"));
}

// Keeps the last `most` tokens of every prompt.
void TruncatePrompts(int most, ApiRequest* request) {
  for (std::vector<TokenId>& prompt : request->prompts) {
    const auto size = static_cast<int64_t>(prompt.size());
    if (size > most) prompt.erase(prompt.begin(), prompt.end() - most);
  }
}

}  // namespace

void LengthFields::Read(RequestFields* fields, std::initializer_list<const char*> names,
                        bool may_be_zero) {
  for (const char* name : names) {
    int value = kAsManyAsFit - 1;
    fields->Read(name, &value, {.low = kAsManyAsFit});
    if (value < kAsManyAsFit) continue;
    if (value == 0 && !may_be_zero) {
      fields->FailBeyond(name, value, kOneOrAsManyAsFit);
    }
    if (max_tokens.has_value() && *max_tokens != value) {
      fields->FailNot(field, *max_tokens, absl::StrCat("the same as ", name));
    }
    max_tokens = value;
    field = name;
  }
  int truncated = kAsManyAsFit - 1;
  fields->Read("truncate_prompt_tokens", &truncated, {.low = kAsManyAsFit});
  if (truncated < kAsManyAsFit) return;
  truncated_prompt = truncated;
  if (truncated == 0) fields->FailBeyond("truncate_prompt_tokens", 0, kOneOrAsManyAsFit);
}

absl::Status CheckSequences(const ServedModel& model, const ApiRequest& request) {
  const int each = std::max(request.n, request.best_of);
  if (request.request.kv_transfer_params.is_active() && request.prompts.size() > 1) {
    return FieldError("kv_transfer_params",
                      absl::StrCat("must come with one prompt, got ", request.prompts.size()));
  }
  if (request.prompts.size() * each <= static_cast<size_t>(model.max_sequences)) {
    return absl::OkStatus();
  }
  return FieldError(
      each > request.n ? "best_of" : "n",
      absl::StrCat(each, " sequences for each of ", request.prompts.size(),
                   " prompts are too many for one request, allowed: ", model.max_sequences));
}

absl::Status SetLengths(const ServedModel& model, const LengthFields& lengths, int otherwise,
                        ApiRequest* request) {
  const int longest = model.MaxLength();
  const int given = lengths.max_tokens.value_or(LengthFields::kAsManyAsFit);
  // max_tokens = 0 needs room for one token, too.
  const int max_tokens = given == 0 ? 1 : std::max(given, 0);
  if (lengths.truncated_prompt == LengthFields::kAsManyAsFit) {
    TruncatePrompts(std::max(1, longest - std::max(1, max_tokens)), request);
  } else if (lengths.truncated_prompt.has_value()) {
    TruncatePrompts(*lengths.truncated_prompt, request);
  }
  int64_t prompt_length = 0;
  for (const auto& prompt : request->prompts) {
    prompt_length = std::max(prompt_length, static_cast<int64_t>(prompt.size()));
  }
  const std::string limit = longest < model.context_length
                                ? absl::StrCat("the ", longest, " tokens that kv_memory holds")
                                : absl::StrCat("the model's context of ", longest);
  if (prompt_length >= longest) {
    return WithCode(
        FieldError(request->PromptField(), absl::StrCat("has ", prompt_length, " tokens, and ",
                                                        limit, " must include one more")),
        "context_length_exceeded");
  }
  if (prompt_length + max_tokens > longest) {
    return WithCode(FieldError(lengths.field, absl::StrCat(max_tokens, " and ", prompt_length,
                                                           " prompt tokens exceed ", limit)),
                    "context_length_exceeded");
  }
  ASSIGN_OR_RETURN(const int room, RoomInAnswer(model, *request));
  if (max_tokens > room) {
    return FieldError(lengths.field,
                      absl::StrCat(max_tokens, " for each of ", request->num_sequences(),
                                   " sequences with ", 1 + request->request.logprobs.num_top,
                                   " log-probabilities a token make the answer larger than ",
                                   model.max_answer_bytes, " bytes, allowed: ", room));
  }
  const int fitting = std::min(longest - static_cast<int>(prompt_length), room);
  const int wanted = lengths.max_tokens.has_value() ? fitting : std::min(fitting, otherwise);
  request->request.max_tokens = given >= 0 ? given : wanted;
  return absl::OkStatus();
}

}  // namespace tandem
