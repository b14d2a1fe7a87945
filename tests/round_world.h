// A target, a draft model and their caches, all fakes, and generations that run on them by the
// production's rounds. For tests.
#ifndef TANDEM_TESTS_ROUND_WORLD_H_
#define TANDEM_TESTS_ROUND_WORLD_H_

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/model_drafter.h"
#include "engine/round.h"
#include "tests/fake_model.h"
#include "tests/law_kit.h"

namespace tandem {

// Proposes what a function says.
class FunctionDrafter final : public Drafter {
 public:
  using Function = std::function<void(const DraftRequest& request, Proposal* proposal)>;
  explicit FunctionDrafter(Function function) : function_(std::move(function)) {}

  std::string_view name() const override { return "function"; }
  std::unique_ptr<DraftState> NewState(absl::Span<const TokenId> /*prompt*/) override {
    return std::make_unique<DraftState>();
  }
  std::vector<DraftOption> Options(DraftState* /*state*/,
                                   absl::Span<const TokenId> /*context*/) override {
    return {{.source = DraftSource::kModel, .evidence = 0, .max_tokens = 8, .num_unread = 1}};
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    for (size_t i = 0; i < requests.size(); ++i) function_(requests[i], proposals[i]);
    return absl::OkStatus();
  }
  void Rollback(DraftState* /*state*/, int /*length*/) override {}

 private:
  Function function_;
};

// Adds a token that was not drawn.
inline void Suggest(TokenId token, Proposal* proposal) {
  Distribution* one_hot = proposal->NextDistribution();
  one_hot->only = token;
  one_hot->probs.clear();
  proposal->tokens.push_back(token);
}

struct RoundModels {
  struct Options {
    FakeModel::Options target = {};
    FakeModel::Options draft = {.salt = 2};
    int num_pages = 400;
    int chunk_tokens = 8;
  };
  RoundModels() : RoundModels(Options()) {}
  explicit RoundModels(const Options& options)
      : target_cache(4, options.num_pages),
        draft_cache(2, 2 * options.num_pages),
        target(target_cache.get(), options.target),
        draft(draft_cache.get(), options.draft),
        drafter(&draft, draft_cache.get(), options.target.vocab, options.chunk_tokens),
        verifier(&target) {}

  // A generation with this drafter, or none.
  std::unique_ptr<Session> NewSession(Tokens prompt, int max_tokens, Drafter* with) {
    auto session = std::make_unique<Session>();
    session->prompt_length = static_cast<int>(prompt.size());
    session->max_length = session->prompt_length + max_tokens;
    session->counts.AddPrompt(prompt);
    session->tokens = std::move(prompt);
    session->target_kv = target_cache->NewSequence();
    if (with != nullptr) session->draft_state = with->NewState(session->tokens);
    return session;
  }
  absl::Status Round(Drafter* with, absl::Span<const RoundStep> steps) {
    return RunRound(with, &verifier, steps, &policy);
  }
  // A round of one session that reads all it lacks.
  absl::Status Round(Drafter* with, Session* session, int k) {
    const RoundStep step{.session = session,
                         .num_fed = session->num_pending(),
                         .draft_tokens = std::min(k, session->DraftRoom())};
    return Round(with, {&step, 1});
  }

  FakeCache target_cache;
  FakeCache draft_cache;
  FakeModel target;
  FakeModel draft;
  ModelDrafter drafter;
  Verifier verifier;
  SpeculationPolicy policy;
};

inline Tokens OutputOf(const Session& session) {
  return {session.tokens.begin() + session.prompt_length, session.tokens.end()};
}

}  // namespace tandem

#endif  // TANDEM_TESTS_ROUND_WORLD_H_
