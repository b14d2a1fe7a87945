#include <string>
#include <utility>

#include "base/status_macros.h"
#include "draft/make_drafter.h"

namespace tandem {
namespace {

// A pointer is null if the sequence does not use that drafter.
struct CombinedDraftState final : DraftState {
  std::unique_ptr<DraftState> model;
  std::unique_ptr<DraftState> lookup;
};

CombinedDraftState& Of(DraftState* state) { return *static_cast<CombinedDraftState*>(state); }

class CombinedDrafter final : public Drafter {
 public:
  CombinedDrafter(std::unique_ptr<Drafter> model, std::unique_ptr<Drafter> lookup)
      : model_(std::move(model)),
        lookup_(std::move(lookup)),
        name_(std::string(model_->name()) + "+ngram") {}

  std::string_view name() const override { return name_; }
  TokenId mask_token() const override { return model_->mask_token(); }
  int num_unpacked() const override { return model_->num_unpacked() + lookup_->num_unpacked(); }
  bool shares_target_cache() const override { return model_->shares_target_cache(); }
  absl::Status CheckIntegrity() const override { return model_->CheckIntegrity(); }

  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override {
    auto state = std::make_unique<CombinedDraftState>();
    if (HasModel(kind) || model_->shares_target_cache()) {
      state->model = model_->NewStateOf(HasModel(kind) ? kind : DrafterKind::kNone, prompt, tenant);
    }
    if (HasLookup(kind)) {
      state->lookup = lookup_->NewStateOf(DrafterKind::kNgram, prompt, std::move(tenant));
    }
    return state;
  }

  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override {
    std::vector<DraftOption> options;
    const auto add = [&](Drafter* drafter, DraftState* its) {
      if (its == nullptr) return;
      const bool has_model = !options.empty();
      for (const DraftOption& option : drafter->Options(its, context)) {
        // Offer successors only without a model: next to one they lowered the number of kept tokens
        // (docs/benchmarks/speculation.md).
        if (option.source != DraftSource::kSuccessors || !has_model) options.push_back(option);
      }
    };
    add(model_.get(), Of(state).model.get());
    add(lookup_.get(), Of(state).lookup.get());
    return options;
  }

  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    for (const bool is_model : {true, false}) {
      std::vector<DraftRequest> chosen;
      std::vector<Proposal*> drafts;
      for (size_t i = 0; i < requests.size(); ++i) {
        CombinedDraftState& state = Of(requests[i].state);
        DraftState* const its = is_model ? state.model.get() : state.lookup.get();
        const bool is_chosen = is_model == (requests[i].source == DraftSource::kModel);
        if (!is_chosen || its == nullptr) continue;  // null: not used by this sequence
        chosen.push_back(requests[i]);
        chosen.back().state = its;
        drafts.push_back(proposals[i]);
      }
      if (chosen.empty()) continue;
      RETURN_IF_ERROR((is_model ? model_ : lookup_)->Propose(chosen, drafts));
    }
    return absl::OkStatus();
  }

  void Rollback(DraftState* state, int length) override {
    CombinedDraftState& both = Of(state);
    if (both.model != nullptr) model_->Rollback(both.model.get(), length);
    if (both.lookup != nullptr) lookup_->Rollback(both.lookup.get(), length);
  }

  int NumCached(const DraftState& state) const override {
    const auto& both = static_cast<const CombinedDraftState&>(state);
    return both.model == nullptr ? 0 : model_->NumCached(*both.model);
  }

  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override {
    CombinedDraftState& both = Of(state);
    if (both.model != nullptr) model_->Publish(both.model.get(), tokens);
    if (both.lookup != nullptr) lookup_->Publish(both.lookup.get(), tokens);
  }

  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override {
    CombinedDraftState& both = Of(state);
    if (both.model != nullptr) model_->AdoptLongerPrefix(both.model.get(), tokens, target_kv);
    if (both.lookup != nullptr) lookup_->AdoptLongerPrefix(both.lookup.get(), tokens, target_kv);
  }

  absl::Status ReadStates(absl::Span<const TargetRows> rows) override {
    std::vector<TargetRows> of_model(rows.begin(), rows.end());
    for (TargetRows& of : of_model) of.state = Of(of.state).model.get();
    return model_->ReadStates(of_model);
  }

  bool HoldsFullPages(const DraftState& state, const KvSequence& kv) const override {
    const auto& both = static_cast<const CombinedDraftState&>(state);
    return both.model == nullptr || model_->HoldsFullPages(*both.model, kv);
  }

  std::optional<CachedText> TextOf(DraftState* state, absl::Span<const TokenId> tokens) override {
    CombinedDraftState& both = Of(state);
    if (both.model == nullptr) return std::nullopt;
    return model_->TextOf(both.model.get(), tokens);
  }

  void Evict(DraftState* state) override {
    CombinedDraftState& both = Of(state);
    if (both.model != nullptr) model_->Evict(both.model.get());
    if (both.lookup != nullptr) lookup_->Evict(both.lookup.get());
  }

 private:
  const std::unique_ptr<Drafter> model_;
  const std::unique_ptr<Drafter> lookup_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<Drafter> CombineDrafters(std::unique_ptr<Drafter> model,
                                         std::unique_ptr<Drafter> lookup) {
  return std::make_unique<CombinedDrafter>(std::move(model), std::move(lookup));
}

}  // namespace tandem
