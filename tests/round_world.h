// For tests: a fake target, a fake draft model and their caches, and generations that run on them
// in the production code's rounds.
#ifndef TANDEM_TESTS_ROUND_WORLD_H_
#define TANDEM_TESTS_ROUND_WORLD_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/model_drafter.h"
#include "engine/round.h"
#include "gtest/gtest.h"
#include "proof/proof_world.h"
#include "tests/fake_model.h"
#include "tests/law_kit.h"

namespace tandem {

// Proposes the tokens that a function chooses.
class FunctionDrafter final : public Drafter {
 public:
  using Function = std::function<void(const DraftRequest& request, Proposal* proposal)>;
  explicit FunctionDrafter(Function function) : function_(std::move(function)) {}

  std::string_view name() const override { return "function"; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind /*kind*/, absl::Span<const TokenId> /*prompt*/,
                                         std::shared_ptr<const Tenant> /*tenant*/) override {
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

  // Returns a new generation with this drafter, or without one if `with` is null.
  std::unique_ptr<Session> NewSession(Tokens prompt, int max_tokens, Drafter* with) {
    auto session = std::make_unique<Session>();
    session->prompt_length = static_cast<int>(prompt.size());
    session->max_length = session->prompt_length + max_tokens;
    session->history.AddPrompt(prompt);
    session->tokens = std::move(prompt);
    session->target_kv = target_cache->NewSequence();
    if (with != nullptr) session->draft_state = with->NewState(session->tokens);
    return session;
  }
  absl::Status Round(Drafter* with, absl::Span<const RoundStep> steps) {
    return RunRound(with, &verifier, steps, &policy);
  }
  // Runs a round of one session that reads all its pending tokens.
  absl::Status Round(Drafter* with, Session* session, int k) {
    const RoundStep step{.session = session,
                         .num_fed = session->num_pending(),
                         .granted = std::min(k, session->DraftRoom())};
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

// Sets the sampling parameters of a session that has not written any tokens yet.
inline void SetSampling(const SamplingParams& sampling, Session* session) {
  session->sampling = sampling;
  session->history = TokenHistory(sampling.constraint.get());
  session->history.AddPrompt(session->tokens);
}

inline Tokens OutputOf(const Session& session) {
  return {session.tokens.begin() + session.prompt_length, session.tokens.end()};
}

// ---- Requests, and their outputs with plain decoding ----

// A request for RoundModels.
struct Ask {
  Tokens prompt;
  int max_tokens = 30;
  SamplingParams sampling = {};
  uint64_t seed = 1;
  std::vector<TokenId> stop_tokens = {};
  LogprobOptions logprobs = {};
};

// Returns every way to shape the distribution of the fakes' seven tokens, each alone and all
// together.
inline std::vector<SamplingParams> AllSampling() {
  return {{},
          {.temperature = 0.0f},
          {.temperature = 0.6f, .top_k = 4},
          {.temperature = 1.5f, .top_p = 0.7f},
          {.min_p = 0.3f},
          {.repetition_penalty = 1.5f},
          {.frequency_penalty = 0.8f},
          {.presence_penalty = 1.2f},
          {.min_tokens = 17, .ending_tokens = {4, 1}},
          {.constraint = std::make_shared<const ClassConstraint>()},
          {.temperature = 0.0f, .constraint = std::make_shared<const ClassConstraint>()},
          {.temperature = 0.0f, .repetition_penalty = 1.3f, .frequency_penalty = 0.4f},
          {.temperature = 0.8f,
           .top_k = 6,
           .top_p = 0.95f,
           .repetition_penalty = 1.2f,
           .presence_penalty = 0.3f,
           .logit_bias = {{2, 1.5f}, {5, -100.0f}}}};
}

inline std::unique_ptr<Session> Start(RoundModels* models, Drafter* drafter, const Ask& ask,
                                      AcceptanceRule rule = AcceptanceRule::kExactMatch) {
  auto s = models->NewSession(ask.prompt, ask.max_tokens, drafter);
  SetSampling(ask.sampling, s.get());
  s->random = RandomSource(ask.seed);
  s->rule = rule;
  s->stop_tokens.insert(ask.stop_tokens.begin(), ask.stop_tokens.end());
  s->logprobs = ask.logprobs;
  return s;
}

// Returns the whole generation without a draft.
inline std::unique_ptr<Session> Plain(const Ask& ask, RoundModels* models) {
  auto s = Start(models, nullptr, ask);
  while (!s->finished) EXPECT_TRUE(models->Round(nullptr, s.get(), 0).ok());
  return s;
}

// Runs rounds of all sessions until each has ended, drafting up to `k` tokens of this option.
inline void RunAll(RoundModels* models, Drafter* drafter,
                   const std::vector<std::unique_ptr<Session>>& sessions, int k,
                   const DraftOption& option = {}) {
  for (;;) {
    std::vector<RoundStep> steps;
    for (const auto& s : sessions) {
      if (s->finished) continue;
      steps.push_back({.session = s.get(),
                       .num_fed = s->num_pending(),
                       .granted = std::min(k, s->DraftRoom()),
                       .option = option});
    }
    if (steps.empty()) return;
    const absl::Status status = models->Round(drafter, steps);
    ASSERT_TRUE(status.ok()) << status;
  }
}

// Returns whether two generations have the same tokens, the same finish reason and status, and the
// same log-probabilities bit for bit.
inline bool SameCompletion(const Session& a, const Session& b) {
  const std::vector<TokenLogprobs>& x = a.completion.logprobs;
  const std::vector<TokenLogprobs>& y = b.completion.logprobs;
  return a.tokens == b.tokens && a.completion.finish_reason == b.completion.finish_reason &&
         a.completion.token_ids == b.completion.token_ids && a.status == b.status &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) {
           return p.id == q.id && p.logprob == q.logprob && p.top == q.top;
         });
}
inline void ExpectSameCompletion(const Session& a, const Session& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_TRUE(SameCompletion(a, b));
}

}  // namespace tandem

#endif  // TANDEM_TESTS_ROUND_WORLD_H_
