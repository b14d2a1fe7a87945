#include "engine/learned_head.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "engine/scheduler.h"
#include "engine/session.h"

namespace tandem {
namespace {

std::vector<TokenId> PairsByTarget(const VocabularyMap* vocabulary) {
  if (vocabulary == nullptr) return {};
  std::vector<TokenId> draft_of(vocabulary->target_size(), -1);
  for (const VocabularyMap::Pair& pair : vocabulary->pairs()) draft_of[pair.target] = pair.draft;
  return draft_of;
}

// Ranks the tokens that the draft can propose, by the draft's ids: end tokens first, which are
// common to all texts, then the others in the order of the target's vocabulary.
DraftHead FirstHead(const Transformer& draft, const LearnedHead::Target& target,
                    absl::Span<const TokenId> draft_of, bool in_one_pass) {
  std::vector<bool> is_ranked(draft.vocab_size());
  std::vector<TokenId> ranking;
  const auto add = [&](TokenId token) {
    if (!draft_of.empty())
      token = token < static_cast<TokenId>(draft_of.size()) ? draft_of[token] : -1;
    const bool can_be_proposed = 0 <= token && token < draft.vocab_size() &&
                                 (!draft_of.empty() || token < target.model->vocab_size());
    if (!can_be_proposed || is_ranked[token]) return;
    is_ranked[token] = true;
    ranking.push_back(token);
  };
  for (const TokenId token : target.end_tokens) add(token);
  const int num_fixed = static_cast<int>(ranking.size());
  for (const TokenId token : target.tokenizer->TokensByMerges()) add(token);
  for (TokenId token = 0; token < target.model->vocab_size(); ++token) add(token);
  return DraftHead(std::move(ranking), num_fixed,
                   {.body = static_cast<double>(draft.bytes_read_per_pass()),
                    .row = static_cast<double>(draft.head_row_bytes()),
                    .target = static_cast<double>(target.model->bytes_read_per_pass()),
                    .in_one_pass = in_one_pass});
}

}  // namespace

LearnedHead::LearnedHead(Transformer* draft, const Target& target, bool in_one_pass)
    : draft_(draft),
      draft_of_(PairsByTarget(target.vocabulary)),
      head_(FirstHead(*draft, target, draft_of_, in_one_pass)) {}

absl::Status LearnedHead::Make() {
  std::vector<TokenId> ids = head_.Ids();
  if (static_cast<int>(ids.size()) == draft_->vocab_size()) ids.clear();
  RETURN_IF_ERROR(draft_->SetHead(std::move(ids)));
  Publish();
  return absl::OkStatus();
}

void LearnedHead::Publish() {
  const absl::MutexLock lock(&mutex_);
  facts_ = {.num_tokens = draft_->head_tokens(),
            .coverage = head_.coverage(),
            .bytes_read_per_pass = static_cast<int64_t>(draft_->bytes_read_per_pass())};
}

LearnedHead::Facts LearnedHead::facts() const {
  const absl::MutexLock lock(&mutex_);
  return facts_;
}

std::vector<TokenId> LearnedHead::ToDraft(absl::Span<const TokenId> target_tokens) const {
  std::vector<TokenId> tokens(target_tokens.begin(), target_tokens.end());
  if (draft_of_.empty()) return tokens;
  for (TokenId& token : tokens) token = draft_of_[token];
  return tokens;
}

void LearnedHead::Learn(absl::Span<const RoundStep> steps, const SpeculationPolicy& policy) {
  const absl::Status status = Guarded("draft head", [&]() -> absl::Status {
    for (const RoundStep& step : steps) {
      Session& s = *step.session;
      if (s.salt != nullptr) continue;  // salted texts must not change shared state
      const absl::Span<const TokenId> tokens = s.tokens;
      if (s.num_ranked == 0) {
        head_.ObservePrompt(ToDraft(tokens.first(s.prompt_length)));
        s.num_ranked = s.prompt_length;
      }
      head_.ObserveOutput(ToDraft(tokens.subspan(s.num_ranked)));
      s.num_ranked = s.length();
    }
    if (steps.empty() || !head_.is_due()) return absl::OkStatus();
    Update(policy.unsalted().AcceptanceAt(steps.back().session->sampling.temperature));
    return absl::OkStatus();
  });
  if (!status.ok()) Log(LogLevel::kWarning, std::string(status.message()));
}

void LearnedHead::Serialize(StateArchive* archive) {
  DraftHead head = head_;
  head.Serialize(archive);
  if (archive->is_reading() && archive->is_complete()) head_ = std::move(head);
}

void LearnedHead::ApplyLoadedState(const SpeculationPolicy& policy) {
  Update(policy.unsalted().AcceptanceAt(/*temperature=*/0.0f));
}

void LearnedHead::Update(const AcceptanceEstimate& acceptance) {
  if (!head_.Update(acceptance)) return Publish();
  const absl::Status status = Make();
  Log(status.ok() ? LogLevel::kDebug : LogLevel::kWarning,
      status.ok() ? absl::StrCat("draft_head_tokens=", head_.size(), " coverage=", head_.coverage())
                  : absl::StrCat("draft_head_tokens: ", status.message()));
}

}  // namespace tandem
