#include "draft/combined_drafter.h"

#include "base/status_macros.h"

namespace tandem {
namespace {

struct CombinedDraftState final : DraftState {
  std::unique_ptr<DraftState> model;
  std::unique_ptr<DraftState> lookup;
};

CombinedDraftState& Of(DraftState* state) { return *static_cast<CombinedDraftState*>(state); }

}  // namespace

std::unique_ptr<DraftState> CombinedDrafter::NewState(absl::Span<const TokenId> prompt) {
  auto state = std::make_unique<CombinedDraftState>();
  state->model = model_->NewState(prompt);
  state->lookup = lookup_->NewState(prompt);
  return state;
}

std::vector<DraftOption> CombinedDrafter::Options(DraftState* state,
                                                  absl::Span<const TokenId> context) {
  std::vector<DraftOption> options = model_->Options(Of(state).model.get(), context);
  for (const DraftOption& option : lookup_->Options(Of(state).lookup.get(), context)) {
    options.push_back(option);
  }
  return options;
}

absl::Status CombinedDrafter::Propose(absl::Span<const DraftRequest> requests,
                                      absl::Span<Proposal* const> proposals) {
  for (const DraftSource source : {DraftSource::kModel, DraftSource::kLookup}) {
    const bool is_model = source == DraftSource::kModel;
    std::vector<DraftRequest> chosen;
    std::vector<Proposal*> drafts;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].source != source) continue;
      CombinedDraftState& state = Of(requests[i].state);
      chosen.push_back(requests[i]);
      chosen.back().state = is_model ? state.model.get() : state.lookup.get();
      drafts.push_back(proposals[i]);
    }
    if (chosen.empty()) continue;
    RETURN_IF_ERROR((is_model ? model_ : lookup_)->Propose(chosen, drafts));
  }
  return absl::OkStatus();
}

void CombinedDrafter::Rollback(DraftState* state, int length) {
  model_->Rollback(Of(state).model.get(), length);
  lookup_->Rollback(Of(state).lookup.get(), length);
}

int CombinedDrafter::NumCached(const DraftState& state) const {
  return model_->NumCached(*static_cast<const CombinedDraftState&>(state).model);
}

void CombinedDrafter::Publish(DraftState* state, absl::Span<const TokenId> tokens) {
  model_->Publish(Of(state).model.get(), tokens);
  lookup_->Publish(Of(state).lookup.get(), tokens);
}

void CombinedDrafter::LookAgain(DraftState* state, absl::Span<const TokenId> tokens) {
  model_->LookAgain(Of(state).model.get(), tokens);
  lookup_->LookAgain(Of(state).lookup.get(), tokens);
}

void CombinedDrafter::Evict(DraftState* state) {
  model_->Evict(Of(state).model.get());
  lookup_->Evict(Of(state).lookup.get());
}

}  // namespace tandem
