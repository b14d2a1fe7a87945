#include "engine/round.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// Tokens that a draft model may lack without its first step costing more than the others.
constexpr int kSmallLag = 4;

// Success or failure, both caches end up holding committed tokens only.
void RollBack(Drafter* drafter, absl::Span<const RoundStep> steps) {
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    s.target_kv.Truncate(std::min(s.target_kv.length(), s.num_cacheable()));
    if (s.draft_state != nullptr) drafter->Rollback(s.draft_state.get(), s.num_cacheable());
  }
}

// The proposals of the round; sessions that still read their prompt let the drafter read along.
// Returns the number of draft steps. A draft that fails is dropped: decoding goes on without.
int Draft(Drafter* drafter, absl::Span<const RoundStep> steps) {
  std::vector<DraftRequest> requests;
  std::vector<Proposal*> proposals;
  int longest = 0;
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    s.proposal.Clear();
    if (s.draft_state == nullptr || (step.completes() && step.draft_tokens == 0)) continue;
    requests.push_back(
        {.context = absl::MakeSpan(s.tokens).first(s.target_kv.length() + step.num_fed),
         .max_tokens = step.draft_tokens,
         .sampling = &s.sampling,
         .counts = s.counts_if_used(),
         .random = s.random,
         .noise = s.rule == AcceptanceRule::kExactMatch ? DraftNoise::kTargets : DraftNoise::kOwn,
         .state = s.draft_state.get()});
    proposals.push_back(&s.proposal);
  }
  if (requests.empty()) return 0;
  const bool failed = !drafter->Propose(requests, proposals).ok();
  for (const RoundStep& step : steps) {
    Session& s = *step.session;
    if (failed) s.proposal.Clear();
    if (failed && step.draft_tokens > 0) ++s.completion.stats.draft_failures;
    longest = std::max(longest, static_cast<int>(s.proposal.tokens.size()));
  }
  return longest;
}

VerifyRequest MakeVerifyRequest(const RoundStep& step) {
  Session& s = *step.session;
  return {.context = s.tokens,
          .num_fed = step.num_fed,
          .proposal = &s.proposal,
          .sampling = &s.sampling,
          .counts = s.counts_if_used(),
          .random = s.random,
          .rule = s.rule,
          .kv = &s.target_kv,
          .logprobs = s.logprobs,
          .prompt_logprobs = s.NeedsPromptLogprobs() ? s.prompt_logprobs : LogprobOptions(),
          .prompt_length = s.prompt_length};
}

// Appends what the verdict kept, up to the first token that ends the generation.
void Commit(VerifyResult result, Session* session) {
  Session& s = *session;
  for (TokenLogprobs& logprobs : result.prompt_logprobs) {
    s.completion.prompt_logprobs.emplace_back(std::move(logprobs));
  }
  if (!result.status.ok()) return s.Fail(std::move(result.status));
  if (!result.judged) return;
  const std::vector<TokenId>& drafted = s.proposal.tokens;
  const int proposed = static_cast<int>(drafted.size());
  const int accepted = result.verdict.num_accepted;
  const Provenance last = proposed == 0          ? Provenance::kPlain
                          : accepted == proposed ? Provenance::kBonus
                                                 : Provenance::kCorrection;
  int emitted = 0;
  for (bool more = true; more && emitted <= accepted; ++emitted) {
    more = emitted < accepted ? s.Append(drafted[emitted], Provenance::kAccepted)
                              : s.Append(result.verdict.next, last);
  }
  if (!result.logprobs.empty()) {
    for (int i = 0; i < emitted; ++i) {
      s.completion.logprobs.push_back(std::move(result.logprobs[i]));
    }
  }
  s.completion.stats.Add(proposed, std::min(accepted, emitted), emitted);
  s.draft_length.Observe(std::min(accepted + 1, proposed), accepted);
}

}  // namespace

absl::Status RunRound(Drafter* drafter, Verifier* verifier, absl::Span<const RoundStep> steps,
                      RoundCosts* costs) {
  const absl::Cleanup roll_back = [&] { RollBack(drafter, steps); };

  const absl::Time start = absl::Now();
  const int num_draft_steps = Draft(drafter, steps);
  const absl::Time drafted = absl::Now();

  std::vector<VerifyRequest> checks;
  for (const RoundStep& step : steps) checks.push_back(MakeVerifyRequest(step));
  std::vector<VerifyResult> results(steps.size());
  RETURN_IF_ERROR(verifier->Verify(checks, absl::MakeSpan(results)));
  const absl::Time verified = absl::Now();

  int num_draft_rows = 0;
  bool only_decodes = true;
  bool draft_catches_up = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    Session& s = *steps[i].session;
    RoundStats& stats = s.completion.stats;
    stats.draft_time += drafted - start;
    (results[i].judged ? stats.verify_time : stats.prefill_time) += verified - drafted;
    const int num_drafted = static_cast<int>(s.proposal.tokens.size());
    num_draft_rows += num_drafted;
    only_decodes = only_decodes && steps[i].num_fed <= 2;
    if (num_drafted > 0 && s.length() > s.drafted_length + kSmallLag) draft_catches_up = true;
    Commit(std::move(results[i]), &s);
    if (num_drafted > 0) s.drafted_length = s.length();
  }
  if (only_decodes) {
    costs->Observe(static_cast<int>(steps.size()), num_draft_rows,
                   draft_catches_up ? 0 : num_draft_steps, drafted - start, verified - drafted);
  }
  return absl::OkStatus();
}

}  // namespace tandem
