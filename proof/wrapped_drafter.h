#ifndef TANDEM_PROOF_WRAPPED_DRAFTER_H_
#define TANDEM_PROOF_WRAPPED_DRAFTER_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/drafter.h"

namespace tandem {

// Passes everything on to a drafter, which must outlive this.
class WrappedDrafter : public Drafter {
 public:
  explicit WrappedDrafter(Drafter* inner) : inner_(inner) {}
  std::string_view name() const override { return inner_->name(); }
  bool is_drawn() const override { return inner_->is_drawn(); }
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

#endif  // TANDEM_PROOF_WRAPPED_DRAFTER_H_
