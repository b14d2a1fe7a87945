#include "engine/session.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

RoundReport RoundOf(const Session& session, const Drafter* drafter) {
  const RoundStats& stats = session.completion.stats;
  return {.proposed = static_cast<int>(stats.proposed - session.delivered.proposed),
          .accepted = static_cast<int>(stats.accepted - session.delivered.accepted),
          .target_cached_tokens = session.target_kv.length(),
          .draft_cached_tokens =
              session.draft_state == nullptr ? 0 : drafter->NumCached(*session.draft_state)};
}

}  // namespace

void Session::TakePlace() {
  if (std::exchange(was_admitted, true)) return;
  client->served += prompt_length;
  if (sampling.constraint == nullptr) return;
  constraint_debt = std::exchange(client->constraint_debt, absl::ZeroDuration());
}

bool Session::Append(TokenId token, Provenance provenance) {
  tokens.push_back(token);
  if (client != nullptr) ++client->served;
  if (TokenHistory* used = history_if_used()) {
    used->AddOutput(token);
    used->Commit();
  }
  completion.token_ids.push_back(token);
  completion.provenance.push_back(static_cast<char>(provenance));
  if (stop_tokens.contains(token)) {
    if (includes_stop && text != nullptr) text->Append(token);
    Finish(FinishReason::kStop);
  } else if (text != nullptr && !text->Append(token)) {
    Finish(FinishReason::kStop);
  } else if (length() >= max_length) {
    Finish(FinishReason::kLength);
  }
  return !finished;
}

void Session::Finish(FinishReason reason) {
  if (finished) return;
  finished = true;
  completion.finish_reason = reason;
  if (text != nullptr && reason != FinishReason::kCancelled) text->Finish();
}

void Session::Fail(absl::Status why) {
  finished = true;
  status = std::move(why);
}

void SessionTimes::OnPlace(Instant now) {
  if (!placed_.has_value()) placed_ = now;
}

void SessionTimes::OnRound(absl::Duration draft, absl::Duration pass, Instant pass_end,
                           bool completes) {
  if (has_read_prompt()) {
    draft_ += draft;
    verify_ += pass;
  } else if (completes) {
    prompt_end_ = pass_end;
  }
}

Timings SessionTimes::Until(Instant end) const {
  const Instant placed = placed_.value_or(end);
  Timings timings;
  timings.end_to_end = end - submitted_;
  timings.queue = placed - submitted_;
  timings.prompt = prompt_end_.value_or(end) - placed;
  timings.all_prompts = timings.prompt;
  timings.draft = draft_;
  timings.verify = verify_;
  if (first_token_.has_value()) timings.time_to_first_token = *first_token_ - submitted_;
  return timings;
}

std::optional<PromptProgress> Session::TakeProgress() {
  if (!reports_prompt || delivered.prompt == prompt_length) return std::nullopt;
  const bool is_scored = scores_only && num_pending() <= 0;
  const int processed = is_scored ? prompt_length : std::min(target_kv.length(), prompt_length);
  if (std::exchange(delivered.prompt, processed) == processed) return std::nullopt;
  return PromptProgress{.total = prompt_length,
                        .cached = completion.cached_tokens,
                        .processed = processed,
                        .time = Instant::Now() - times.submitted()};
}

std::optional<Piece> Session::TakePiece(const Drafter* drafter) {
  Completion& c = completion;
  if (c.token_ids.size() > delivered.tokens && delivered.tokens == 0) {
    times.OnFirstToken(Instant::Now());
    c.first_round_tokens = static_cast<int>(c.token_ids.size());
  }
  const std::string& whole = text->text();
  const std::optional<PromptProgress> progress = TakeProgress();
  if (c.token_ids.size() == delivered.tokens && whole.size() == delivered.text &&
      !progress.has_value()) {
    return std::nullopt;
  }
  const Piece piece{
      .text = std::string_view(whole).substr(delivered.text),
      .token_ids = absl::MakeConstSpan(c.token_ids).subspan(delivered.tokens),
      .provenance = std::string_view(c.provenance).substr(delivered.tokens),
      .logprobs = c.logprobs.empty() ? absl::Span<const TokenLogprobs>()
                                     : absl::MakeConstSpan(c.logprobs).subspan(delivered.tokens),
      .choice_logprobs = delivered.tokens == 0 ? absl::MakeConstSpan(c.choice_logprobs)
                                               : absl::Span<const ChoiceLogprob>(),
      .rejected = absl::MakeConstSpan(rejected).subspan(delivered.rejected),
      .round = RoundOf(*this, drafter),
      .prompt_progress = progress};
  delivered.text = whole.size();
  delivered.tokens = c.token_ids.size();
  delivered.rejected = rejected.size();
  delivered.proposed = c.stats.proposed;
  delivered.accepted = c.stats.accepted;
  return piece;
}

}  // namespace tandem
