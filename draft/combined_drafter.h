#ifndef TANDEM_DRAFT_COMBINED_DRAFTER_H_
#define TANDEM_DRAFT_COMBINED_DRAFTER_H_

#include <memory>
#include <string>
#include <vector>

#include "draft/drafter.h"

namespace tandem {

// A model and a lookup side by side: offers what both offer, and lets the one draft whose option
// was chosen; for a sequence that is to have only one of them, it is that one. Each slot keeps its
// own kind of distribution, and the choice looks at committed tokens only, so every acceptance rule
// stays lossless.
class CombinedDrafter final : public Drafter {
 public:
  CombinedDrafter(std::unique_ptr<Drafter> model, std::unique_ptr<Drafter> lookup)
      : model_(std::move(model)),
        lookup_(std::move(lookup)),
        name_(std::string(model_->name()) + "+ngram") {}

  std::string_view name() const override { return name_; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  int NumCached(const DraftState& state) const override;
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override;
  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override;
  std::optional<CachedText> TextOf(DraftState* state, absl::Span<const TokenId> tokens) override;
  void Evict(DraftState* state) override;
  int num_unpacked() const override { return model_->num_unpacked() + lookup_->num_unpacked(); }
  bool shares_target_cache() const override { return model_->shares_target_cache(); }
  absl::Status ReadStates(absl::Span<const TargetRows> rows) override;
  bool HoldsFullPages(const DraftState& state, const KvSequence& kv) const override;
  absl::Status CheckIntegrity() const override { return model_->CheckIntegrity(); }

 private:
  std::unique_ptr<Drafter> model_;
  std::unique_ptr<Drafter> lookup_;
  std::string name_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_COMBINED_DRAFTER_H_
