#include "proof/mask_faults.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "proof/proof_world.h"

namespace tandem {
namespace {

bool IsModelDraft(const DraftRequest& request) {
  return request.granted > 0 && request.source == DraftSource::kModel;
}

// Changes drafts of the model after they were made.
class RedrawnDrafter : public WrappedDrafter {
 public:
  using WrappedDrafter::WrappedDrafter;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    RETURN_IF_ERROR(inner_->Propose(requests, proposals));
    for (size_t i = 0; i < requests.size(); ++i) {
      if (IsModelDraft(requests[i])) Redraw(requests[i], proposals[i]);
    }
    return absl::OkStatus();
  }

 protected:
  virtual void Redraw(const DraftRequest& request, Proposal* proposal) const = 0;

  // Draws token `slot` from its recorded row again, with the noise of slot `noise_of`.
  static void RedrawSlot(const DraftRequest& request, int slot, int noise_of, Proposal* proposal) {
    const auto position = static_cast<uint32_t>(request.context.size());
    const auto of = static_cast<uint32_t>(noise_of);
    const RandomPlace place =
        request.noise == DraftNoise::kTargets
            ? RandomPlace{.stream = RandomStream::kTarget, .position = position + of}
            : RandomPlace{.stream = RandomStream::kDraft, .position = position, .slot = of};
    proposal->tokens[slot] = Draw(proposal->drawn_from[slot], request.random, place);
  }
};

class MasksAlikeDrafter final : public RedrawnDrafter {
 public:
  using RedrawnDrafter::RedrawnDrafter;

 protected:
  void Redraw(const DraftRequest& request, Proposal* proposal) const override {
    for (int slot = 2; slot < static_cast<int>(proposal->tokens.size()); ++slot) {
      proposal->drawn_from[slot] = proposal->drawn_from[1];
      RedrawSlot(request, slot, slot, proposal);
    }
  }
};

class SlotsSharingNoiseDrafter final : public RedrawnDrafter {
 public:
  using RedrawnDrafter::RedrawnDrafter;

 protected:
  void Redraw(const DraftRequest& request, Proposal* proposal) const override {
    for (int slot = 1; slot < static_cast<int>(proposal->tokens.size()); ++slot) {
      RedrawSlot(request, slot, 0, proposal);
    }
  }
};

class MaskRowsOffDrafter final : public WrappedDrafter {
 public:
  using WrappedDrafter::WrappedDrafter;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    std::vector<DraftRequest> longer(requests.begin(), requests.end());
    for (DraftRequest& request : longer) {
      if (IsModelDraft(request)) ++request.granted;
    }
    RETURN_IF_ERROR(inner_->Propose(longer, proposals));
    for (size_t i = 0; i < requests.size(); ++i) {
      Proposal& proposal = *proposals[i];
      if (!IsModelDraft(requests[i]) || proposal.tokens.empty()) continue;
      const auto rows = proposal.drawn_from.begin();
      std::rotate(rows, rows + 1, rows + static_cast<int>(proposal.tokens.size()));
      proposal.tokens.erase(proposal.tokens.begin());
      if (!proposal.confidences.empty()) proposal.confidences.erase(proposal.confidences.begin());
    }
    return absl::OkStatus();
  }
};

class MasksKeptDrafter final : public WrappedDrafter {
 public:
  using WrappedDrafter::WrappedDrafter;
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override {
    auto state = std::make_unique<State>();
    state->inner = inner_->NewStateOf(kind, prompt, std::move(tenant));
    return state;
  }
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override {
    return inner_->Options(Of(state).inner.get(), Believed(&Of(state), context));
  }
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    std::vector<DraftRequest> believed(requests.begin(), requests.end());
    for (DraftRequest& request : believed) {
      State& state = Of(request.state);
      request.context = Believed(&state, request.context);
      request.state = state.inner.get();
    }
    RETURN_IF_ERROR(inner_->Propose(believed, proposals));
    for (size_t i = 0; i < requests.size(); ++i) {
      State& state = Of(requests[i].state);
      state.masks_begin = static_cast<int>(requests[i].context.size());
      state.masks_end = state.masks_begin + std::max(proposals[i]->num_slots - 1, 0);
    }
    return absl::OkStatus();
  }
  void Rollback(DraftState* state, int length) override {
    inner_->Rollback(Of(state).inner.get(), length);
  }
  void Publish(DraftState* /*state*/, absl::Span<const TokenId> /*tokens*/) override {}
  void Evict(DraftState* state) override { inner_->Evict(Of(state).inner.get()); }

 private:
  struct State final : DraftState {
    std::unique_ptr<DraftState> inner;
    std::vector<TokenId> tokens;         // the sequence as the drafter sees it
    int masks_begin = 0, masks_end = 0;  // places of the masks of the last pass
  };
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }

  // All tokens but the last were accepted.
  absl::Span<const TokenId> Believed(State* state, absl::Span<const TokenId> context) const {
    std::vector<TokenId>& tokens = state->tokens;
    const int length = static_cast<int>(context.size());
    if (static_cast<int>(tokens.size()) > length) tokens.resize(length);
    for (int i = static_cast<int>(tokens.size()); i < length; ++i) {
      const bool is_mask = state->masks_begin <= i && i < state->masks_end && i + 1 < length;
      tokens.push_back(is_mask ? inner_->mask_token() : context[i]);
    }
    return tokens;
  }
};

}  // namespace

std::unique_ptr<Drafter> WithMasksKept(Drafter* inner) {
  return std::make_unique<MasksKeptDrafter>(inner);
}

std::unique_ptr<Drafter> WithMaskRowsOffByOne(Drafter* inner) {
  return std::make_unique<MaskRowsOffDrafter>(inner);
}

std::unique_ptr<Drafter> WithMasksAlike(Drafter* inner) {
  return std::make_unique<MasksAlikeDrafter>(inner);
}

std::unique_ptr<Drafter> WithSlotsSharingNoise(Drafter* inner) {
  return std::make_unique<SlotsSharingNoiseDrafter>(inner);
}

}  // namespace tandem
