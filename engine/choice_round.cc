#include "engine/choice_round.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/constraint/choice_texts.h"

namespace tandem {
namespace {

// Probabilities are products of raw rows, to which only the temperature is applied.
absl::Status CheckSampling(const SamplingParams& sampling) {
  absl::Status status;
  const SamplingParams off;
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits&) {
    if (absl::string_view(parameter.name) == "temperature" || sampling.*member == off.*member) {
      return;
    }
    status.Update(FieldError(
        parameter.name, absl::StrCat("must be ", off.*member,
                                     " with choice_law \"conditional\", got ", sampling.*member)));
  });
  if (!sampling.logit_bias.empty()) {
    status.Update(FieldError("logit_bias", "must be empty with choice_law \"conditional\""));
  }
  return status;
}

// The choices must fit next to the prompt, one at a time.
absl::Status CheckRoom(const ChoiceScores& choices, const Runtime& runtime,
                       const Session& session) {
  const int length = session.prompt_length + choices.MaxLength();
  const int context = runtime.target->context_length();
  const auto too_long = [&](absl::string_view room) {
    return FieldError("constraint", absl::StrCat("the longest choice has ", choices.MaxLength(),
                                                 " tokens; after a prompt of ",
                                                 session.prompt_length, " there is ", room));
  };
  if (length >= context) {
    return too_long(absl::StrCat("room for ", std::max(context - session.prompt_length - 1, 0),
                                 " and the end"));
  }
  const int page_size = runtime.target_cache->layout().page_size;
  const int pages = (length + page_size - 1) / page_size + 1;  // one is a copy of the prompt's last
  if (pages <= runtime.target_cache->num_pages()) return absl::OkStatus();
  return too_long(absl::StrCat("need of ", pages, " pages, but kv_memory holds ",
                               runtime.target_cache->num_pages()));
}

void Choose(Session* session) {
  Session& s = *session;
  const std::vector<double> logprobs = s.choices->Logprobs();
  const absl::StatusOr<std::vector<double>> normalized = NormalizedLogprobs(logprobs);
  if (!normalized.ok()) return s.Fail(normalized.status());
  Completion& c = s.completion;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    c.choice_logprobs[i].logprob = logprobs[i];
    c.choice_logprobs[i].normalized_logprob = (*normalized)[i];
  }
  const int drawn =
      DrawChoice(logprobs, s.sampling.temperature, ChoiceUniform(s.random, s.prompt_length));
  int num_emitted = 0;
  for (const TokenId token : s.choices->OutputOf(drawn)) {
    ++num_emitted;
    if (!s.Append(token, Provenance::kPlain)) break;
  }
  if (s.logprobs.num_top >= 0) {
    const std::vector<TokenLogprobs>& rows = s.choices->RowsOf(drawn);
    c.logprobs.assign(rows.begin(), rows.begin() + num_emitted);
  }
  c.stats.Add(DraftSource::kModel, /*num_proposed=*/0, /*num_accepted=*/0, num_emitted);
  c.rounds_by_length.Add(/*num_proposed=*/0, /*num_accepted=*/0);
}

}  // namespace

absl::Status SetChoices(const Request& request, const Runtime& runtime, Session* session) {
  Session& s = *session;
  if (!request.constraint.has_value()) {
    return FieldError("choice_law", "found \"conditional\" without choices");
  }
  RETURN_IF_ERROR(CheckSampling(s.sampling));
  if (request.max_tokens == 0) {
    return FieldError("max_tokens", "must be at least 1 with choice_law \"conditional\", got 0");
  }
  if (request.logprobs.num_top >= 0 && request.logprobs.processed) {
    return FieldError("logprobs", "must be raw with choice_law \"conditional\", got processed");
  }
  if (s.sampling.ending_tokens.empty()) {
    return FieldError("choice_law",
                      "found \"conditional\", but the model has no token that ends an output");
  }
  ASSIGN_OR_RETURN(std::vector<ChoiceText> choices,
                   ChoiceTextsOf(*request.constraint, *runtime.tokenizer));
  std::vector<std::vector<TokenId>> tokens;
  for (ChoiceText& choice : choices) {
    s.completion.choice_logprobs.push_back({.text = std::move(choice.text)});
    tokens.push_back(std::move(choice.tokens));
    for (const TokenId token : tokens.back()) {
      if (token < runtime.target->vocab_size()) continue;
      return FieldError("constraint", absl::StrCat("token ", token, " is not in the model's ",
                                                   runtime.target->vocab_size()));
    }
  }
  std::vector<TokenId> end_tokens = s.sampling.ending_tokens;
  std::sort(end_tokens.begin(), end_tokens.end());
  s.choices = std::make_unique<ChoiceScores>(std::move(tokens), std::move(end_tokens),
                                             request.logprobs.num_top);
  s.scores_only = true;
  return CheckRoom(*s.choices, runtime, s);
}

absl::Status RunChoiceRound(LanguageModel* target, absl::Span<const ChoiceStep> steps,
                            int max_rows) {
  std::vector<ChoiceRequest> requests;
  for (const ChoiceStep& step : steps) {
    Session& s = *step.session;
    requests.push_back({.scores = s.choices.get(),
                        .count = step.part.count,
                        .last = s.tokens.back(),
                        .kv = &s.target_kv});
  }
  const Instant start = Instant::Now();
  RETURN_IF_ERROR(Guarded("choices", [&] { return ScoreChoices(target, requests, max_rows); }));
  const Instant end = Instant::Now();
  for (const ChoiceStep& step : steps) {
    Session& s = *step.session;
    (s.times.has_read_prompt() ? s.completion.stats.verify_time
                               : s.completion.stats.prefill_time) += end - start;
    s.times.OnRound(absl::ZeroDuration(), end - start, end, /*completes=*/true);
    absl::Status status = s.choices->status();
    if (status.ok() && s.choices->is_complete()) {
      status = Caught("committing a choice", [&s] { Choose(&s); });
    }
    if (!status.ok()) s.Fail(std::move(status));
  }
  return absl::OkStatus();
}

}  // namespace tandem
