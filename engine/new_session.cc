#include "engine/new_session.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "draft/draft_text_store.h"
#include "engine/choice_round.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"
#include "text/chat/thinking_constraint.h"

namespace tandem {
namespace {

absl::Status CheckToken(absl::string_view field, TokenId id, const Runtime& runtime) {
  const int vocab_size = runtime.target->vocab_size();
  if (0 <= id && id < vocab_size) return absl::OkStatus();
  return FieldError(field, absl::StrCat("token ", id, " is not in the vocabulary of ", vocab_size));
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> PromptIdsOf(const Request& request, const Runtime& runtime) {
  if (!request.prompt.empty() && !request.prompt_ids.empty()) {
    return FieldError("prompt", "both text and ids are given");
  }
  std::vector<TokenId> ids = request.prompt_ids;
  if (!request.prompt.empty()) {
    ASSIGN_OR_RETURN(ids, runtime.tokenizer->Encode(request.prompt, request.special));
    ids = runtime.tokenizer->WithTemplate(std::move(ids));
  }
  if (ids.empty()) return FieldError("prompt", "is empty");
  for (const TokenId id : ids) RETURN_IF_ERROR(CheckToken("prompt_ids", id, runtime));
  return ids;
}

namespace {

// Returns the rule of a request. docs/verification.md describes the choice for kAuto.
AcceptanceRule RuleOf(AcceptanceRule wanted, const Request& request, int draft_tokens,
                      bool draft_is_drawn) {
  if (wanted != AcceptanceRule::kAuto) return wanted;
  if (request.seed.has_value() || request.sampling.is_greedy() || !draft_is_drawn) {
    return AcceptanceRule::kExactMatch;
  }
  return draft_tokens == 1 ? AcceptanceRule::kToken : AcceptanceRule::kBlock;
}

uint64_t FreshSeed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

absl::Status CheckDrafter(DrafterKind kind, const Runtime& runtime) {
  const std::vector<DrafterKind> drafters = runtime.Drafters();
  if (kind == DrafterKind::kNone) return absl::OkStatus();
  if (std::find(drafters.begin(), drafters.end(), kind) != drafters.end()) return absl::OkStatus();
  std::string allowed = "none";
  for (const DrafterKind one : drafters) absl::StrAppend(&allowed, ", ", View(NameOf(one)));
  return FieldError("drafter",
                    absl::StrCat("\"", View(NameOf(kind)), "\" cannot run, allowed: ", allowed));
}

absl::StatusOr<std::vector<TokenId>> PromptOf(const Request& request, const EngineOptions& options,
                                              const Runtime& runtime) {
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, PromptIdsOf(request, runtime));
  const int context = runtime.target->context_length();
  const int room = context - (request.max_tokens > 0 ? 1 : 0);
  if (static_cast<int64_t>(ids.size()) > room) {
    const std::string what =
        options.context > 0 ? "a context limited to " : "the target's context of ";
    return FieldError("prompt", absl::StrCat("has ", ids.size(), " tokens, but ", what, context,
                                             " has room for ", room));
  }
  return ids;
}

absl::Status SetConstraint(const Request& request, const Runtime& runtime, Session* session) {
  SamplingParams& sampling = session->sampling;
  sampling.constraint = nullptr;
  if (request.constraint.has_value()) {
    if (request.ignore_eos) {
      return FieldError("ignore_eos",
                        "must be false with a constraint, which determines where the output ends");
    }
    // A choice contains no reasoning that could be limited.
    if (request.choice_law == ChoiceLaw::kConditional) return absl::OkStatus();
    ASSIGN_OR_RETURN(sampling.constraint,
                     runtime.constraints->Compile(*request.constraint, sampling.ending_tokens,
                                                  request.cache_salt));
  }
  if (request.thinking_budget.has_value()) {
    session->free_sampling = sampling;
    ASSIGN_OR_RETURN(
        sampling.constraint,
        ThinkingConstraint::Make(*request.thinking_budget, *runtime.tokenizer,
                                 runtime.target->vocab_size(), std::move(sampling.constraint)));
  }
  session->history = TokenHistory(sampling.constraint.get());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> NewSession(Request request, const EngineOptions& options,
                                                    const Runtime& runtime) {
  auto session = std::make_unique<Session>();
  Session& s = *session;
  RETURN_IF_ERROR(request.sampling.Validate(runtime.target->vocab_size()));
  RETURN_IF_ERROR(CheckWithin("max_tokens", request.max_tokens, {.low = 0}));
  if (request.time_limit <= absl::ZeroDuration()) {
    return FieldError("time_limit", absl::StrCat("must be positive, got ",
                                                 absl::FormatDuration(request.time_limit)));
  }
  s.client_name = std::move(request.client);
  s.deadline = s.times.submitted() + request.time_limit;
  if (request.sampling.min_tokens > request.max_tokens) {
    return FieldError("min_tokens",
                      absl::StrCat("must be from 0 to max_tokens, which is ", request.max_tokens,
                                   ", got ", request.sampling.min_tokens));
  }
  const int draft_tokens = request.draft_tokens.value_or(options.draft_tokens);
  RETURN_IF_ERROR(CheckWithin("draft_tokens", draft_tokens, kDraftTokenLimits));
  RETURN_IF_ERROR(CheckWithin("logprobs", request.logprobs.num_top, kLogprobLimits));
  RETURN_IF_ERROR(CheckWithin("prompt_logprobs", request.prompt_logprobs.num_top, kLogprobLimits));
  RETURN_IF_ERROR(CheckCacheSalt(request.cache_salt));
  if (!request.cache_salt.empty()) {
    s.salt = std::make_shared<const std::string>(request.cache_salt);
  }
  s.drafter = request.drafter.value_or(runtime.drafter_kind);
  if (s.drafter != DrafterKind::kAuto) s.drafter = ResolveDrafter(s.drafter, runtime.draft_form());
  RETURN_IF_ERROR(CheckDrafter(s.drafter, runtime));
  const bool draft_is_drawn = HasModel(s.drafter);
  s.rule =
      RuleOf(request.verifier.value_or(options.verifier), request, draft_tokens, draft_is_drawn);
  RETURN_IF_ERROR(CheckStopStrings(request.stop));
  ASSIGN_OR_RETURN(s.tokens, PromptOf(request, options, runtime));
  s.prompt_length = s.length();
  s.scores_only = request.max_tokens == 0;
  // Never generate tokens beyond the context.
  s.max_length = static_cast<int>(std::min<int64_t>(int64_t{s.prompt_length} + request.max_tokens,
                                                    runtime.target->context_length()));
  const int64_t page_size = options.page_size;
  const int64_t pages = (s.max_length + page_size - 1) / page_size;
  if (pages > runtime.target_cache->num_pages()) {
    return FieldError("max_tokens", absl::StrCat(s.prompt_length, " prompt tokens and ",
                                                 s.max_length - s.prompt_length, " more need ",
                                                 pages, " pages, but kv_memory holds ",
                                                 runtime.target_cache->num_pages()));
  }
  s.sampling = std::move(request.sampling);
  s.random = RandomSource(request.seed.has_value() ? *request.seed : FreshSeed())
                 .ForSequence(request.sequence);
  for (const TokenId stop : request.stop_tokens)
    RETURN_IF_ERROR(CheckToken("stop_tokens", stop, runtime));
  s.stop_tokens.insert(request.stop_tokens.begin(), request.stop_tokens.end());
  if (!request.ignore_eos) {
    s.stop_tokens.insert(runtime.end_tokens.begin(), runtime.end_tokens.end());
  }
  s.sampling.ending_tokens.assign(s.stop_tokens.begin(), s.stop_tokens.end());
  RETURN_IF_ERROR(SetConstraint(request, runtime, &s));
  if (request.choice_law == ChoiceLaw::kConditional) {
    RETURN_IF_ERROR(SetChoices(request, runtime, &s));
  }
  if (!request.prediction.empty()) {
    auto predicted = runtime.predictions->Get(*runtime.tokenizer, request.prediction,
                                              s.max_length - s.prompt_length, s.salt);
    if (!predicted.ok()) return WithField(predicted.status(), "prediction");
    s.prediction = Prediction(*std::move(predicted));
  }
  if (TokenHistory* used = s.history_if_used()) used->AddPrompt(s.tokens);
  s.logprobs = request.logprobs;
  s.prompt_logprobs = request.prompt_logprobs;
  s.reports_prompt = request.prompt_progress;
  // Predictions work without a drafter.
  const bool predicts = !request.prediction.empty() && request.drafter != DrafterKind::kNone;
  const bool drafts = s.choices == nullptr && (s.drafter != DrafterKind::kNone || predicts);
  s.draft_tokens = s.scores_only || !drafts ? 0 : draft_tokens;
  s.learns_draft_temperature = !request.seed.has_value() && s.rule != AcceptanceRule::kExactMatch;
  s.includes_stop = request.include_stop;
  s.text = std::make_unique<OutputText>(
      runtime.tokenizer.get(), s.tokens, request.stop, s.sampling.min_tokens,
      OutputText::Shown{.special_tokens = !request.skip_special_tokens,
                        .stop = request.include_stop,
                        .of_special = request.shown_special_tokens});
  s.completion.prompt_tokens = s.prompt_length;
  s.completion.verifier = s.rule;
  s.completion.draft_tokens = drafts ? draft_tokens : 0;
  if (s.prompt_logprobs.num_top >= 0) s.completion.prompt_logprobs.emplace_back(std::nullopt);
  return session;
}

}  // namespace tandem
