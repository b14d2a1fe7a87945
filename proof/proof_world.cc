#include "proof/proof_world.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "engine/round.h"

namespace tandem {

std::unique_ptr<Session> ProofRounds::NewSession(const ProofRequest& request,
                                                 KvSequence read) const {
  auto session = std::make_unique<Session>();
  Session& s = *session;
  s.sampling = request.sampling;
  s.random = request.random;
  s.rule = request.rule;
  s.prompt_length = static_cast<int>(request.prompt.size());
  s.max_length = s.prompt_length + request.max_tokens;
  s.logprobs = request.logprobs;
  s.tokens.assign(request.prompt.begin(), request.prompt.end());
  s.history = world_.constraint_fault == ConstraintFault::kNone || s.sampling.constraint == nullptr
                  ? TokenHistory(s.sampling.constraint.get())
                  : TokenHistory(BrokenClassState(world_.constraint_fault, &s));
  if (s.sampling.has_penalties()) s.history.AddPrompt(s.tokens);
  s.target_kv = std::move(read);
  s.tenant = world_.tenant;
  if (world_.drafter != nullptr) {
    s.draft_state = world_.drafter->NewStateOf(s.drafter, s.tokens, s.tenant);
    if (world_.drafter->shares_target_cache() && s.target_kv.length() > 0) {
      world_.drafter->AdoptLongerPrefix(s.draft_state.get(), s.tokens, s.target_kv);
    }
  }
  return session;
}

absl::Status ProofRounds::Run(absl::Span<Session* const> sessions, int draft_tokens,
                              int chunk_tokens) {
  std::vector<RoundStep> steps;
  for (Session* session : sessions) {
    RoundStep step{.session = session,
                   .num_fed = std::min(session->num_pending(), chunk_tokens),
                   .granted = 0};
    session->draft_tokens = draft_tokens;
    if (draft_tokens > 0 && step.completes() && session->draft_state != nullptr) {
      const std::vector<DraftOption> options =
          world_.drafter->Options(session->draft_state.get(), session->tokens);
      // Of several sources now this one, now that one, by what is committed.
      if (!options.empty()) {
        step.option = options[session->length() % options.size()];
        step.granted = std::min({draft_tokens, step.option.max_tokens, session->DraftRoom()});
      }
    }
    steps.push_back(step);
  }
  RETURN_IF_ERROR(RunRound(world_.drafter, &verifier_, steps, &policy_));
  for (const Session* session : sessions) RETURN_IF_ERROR(session->status);
  return absl::OkStatus();
}

}  // namespace tandem
