#ifndef TANDEM_PROOF_PROOF_WORLD_H_
#define TANDEM_PROOF_PROOF_WORLD_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "draft/policy/speculation_policy.h"
#include "draft/tenants.h"
#include "engine/session.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "proof/class_constraint.h"
#include "verify/verifier.h"

namespace tandem {

// The parts that generations run on. All members must outlive whoever runs on them; mistakes are
// planted by putting another part in the place of one (proof/planted_faults.h).
struct ProofWorld {
  LanguageModel* target = nullptr;
  PagedKvCache* target_cache = nullptr;
  Drafter* drafter = nullptr;        // or null
  std::shared_ptr<Tenant> tenant{};  // who generates: its earlier texts are drafted from
  JudgeFunction judge = Judge;
  ConstraintFault constraint_fault = ConstraintFault::kNone;  // of ClassConstraints
};

// One generation of a proof. It ends with its length, not at end tokens.
struct ProofRequest {
  absl::Span<const TokenId> prompt;
  SamplingParams sampling;
  AcceptanceRule rule = AcceptanceRule::kExactMatch;
  RandomSource random{0};
  int max_tokens = 1;
  LogprobOptions logprobs;
};

// Runs generations by the engine's own rounds, with a fixed number of draft tokens.
class ProofRounds {
 public:
  explicit ProofRounds(const ProofWorld& world)
      : world_(world), verifier_(world.target, world.judge) {}

  // With nothing read yet, or from `read`, the target's cache after a part of the prompt. With a
  // draft head this part is full pages, which hold the head's layer.
  std::unique_ptr<Session> NewSession(const ProofRequest& request, KvSequence read) const;
  std::unique_ptr<Session> NewSession(const ProofRequest& request) const {
    return NewSession(request, world_.target_cache->NewSequence());
  }
  // One round of these sessions, each with up to `draft_tokens`; of a prompt `chunk_tokens` at a
  // time are read. A session that fails is an error.
  absl::Status Run(absl::Span<Session* const> sessions, int draft_tokens, int chunk_tokens);

  const ProofWorld& world() const { return world_; }

 private:
  ProofWorld world_;
  Verifier verifier_;
  SpeculationPolicy policy_;  // is told, decides nothing
};

}  // namespace tandem

#endif  // TANDEM_PROOF_PROOF_WORLD_H_
