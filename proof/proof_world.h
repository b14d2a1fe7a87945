#ifndef TANDEM_PROOF_PROOF_WORLD_H_
#define TANDEM_PROOF_PROOF_WORLD_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/policy/speculation_policy.h"
#include "draft/tenants.h"
#include "engine/session.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/token_constraint.h"
#include "verify/verifier.h"

namespace tandem {

// After tokens whose ids sum to s, token v is allowed if (v - s) % 3 is 0 or 1. The constraint
// never ends and forces nothing. It suits proofs with any model: it does not need a grammar, it
// binds in every position, and it depends on all earlier tokens. For vocabularies of up to 2^18
// tokens.
class ClassConstraint final : public TokenConstraint {
 public:
  std::unique_ptr<ConstraintState> Begin() const override;
};

// Returns a thinking budget of one token and a window of one, for the same vocabularies: token v is
// written as "a", "b", a line end or "x", by v % 4, and "ab" ends the reasoning.
std::shared_ptr<const TokenConstraint> ClassThinking();

// Mistakes that an engine can make with constraints.
enum class ConstraintFault {
  kNone,
  kLate,           // masks of the previous position
  kNotRolledBack,  // rejected tokens stay in the state
  kNotOnBonus,     // no mask on the row after a whole draft
};

// Returns a state of a ClassConstraint with this mistake. `session`, to which it belongs, must
// outlive it.
std::unique_ptr<ConstraintState> BrokenClassState(ConstraintFault fault, const Session* session);

// The parts that generations run on. All members must outlive the generations. A fault is planted
// by replacing a part (proof/planted_faults.h).
struct ProofWorld {
  LanguageModel* target = nullptr;
  PagedKvCache* target_cache = nullptr;
  Drafter* drafter = nullptr;        // or null
  std::shared_ptr<Tenant> tenant{};  // of the generations: drafts are made from its earlier texts
  JudgeFunction judge = Judge;
  ConstraintFault constraint_fault = ConstraintFault::kNone;  // in ClassConstraints
};

// One generation of a proof. It ends at its length, not at end tokens.
struct ProofRequest {
  absl::Span<const TokenId> prompt;
  SamplingParams sampling;
  AcceptanceRule rule = AcceptanceRule::kExactMatch;
  RandomSource random{0};
  int max_tokens = 1;
  LogprobOptions logprobs;
};

// Runs generations with the engine's own rounds and a fixed number of draft tokens.
class ProofRounds {
 public:
  explicit ProofRounds(const ProofWorld& world)
      : world_(world), verifier_(world.target, world.judge) {}

  // Returns a session that has read nothing yet, or that starts from `read`, the target's cache
  // after a part of the prompt. With a draft head this part must be full pages, which contain the
  // head's layer.
  std::unique_ptr<Session> NewSession(const ProofRequest& request, KvSequence read) const;
  std::unique_ptr<Session> NewSession(const ProofRequest& request) const {
    return NewSession(request, world_.target_cache->NewSequence());
  }
  // Runs one round of these sessions, each with up to `draft_tokens` drafts and up to
  // `chunk_tokens` tokens of its prompt. Returns the error of a session that fails.
  absl::Status Run(absl::Span<Session* const> sessions, int draft_tokens, int chunk_tokens);

  const ProofWorld& world() const { return world_; }

 private:
  ProofWorld world_;
  Verifier verifier_;
  SpeculationPolicy policy_;  // records rounds, but decides nothing
};

// Forwards all calls to a drafter, which must outlive this object.
class WrappedDrafter : public Drafter {
 public:
  explicit WrappedDrafter(Drafter* inner) : inner_(inner) {}
  std::string_view name() const override { return inner_->name(); }
  bool is_drawn() const override { return inner_->is_drawn(); }
  TokenId mask_token() const override { return inner_->mask_token(); }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override {
    return inner_->NewStateOf(kind, prompt, std::move(tenant));
  }
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override {
    return inner_->Options(state, context);
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    return inner_->Propose(requests, proposals);
  }
  void Rollback(DraftState* state, int length) override { inner_->Rollback(state, length); }
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override {
    inner_->Publish(state, tokens);
  }
  void Evict(DraftState* state) override { inner_->Evict(state); }
  bool shares_target_cache() const override { return inner_->shares_target_cache(); }
  absl::Status ReadStates(absl::Span<const TargetRows> rows) override {
    return inner_->ReadStates(rows);
  }
  bool HoldsFullPages(const DraftState& state, const KvSequence& kv) const override {
    return inner_->HoldsFullPages(state, kv);
  }
  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override {
    inner_->AdoptLongerPrefix(state, tokens, target_kv);
  }

 protected:
  Drafter* inner_;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_PROOF_WORLD_H_
