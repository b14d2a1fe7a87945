#include <algorithm>
#include <utility>

#include "base/check.h"
#include "draft/make_drafter.h"
#include "tandem/draft_tokens.h"

namespace tandem {
namespace {

// A window grows to four times its first size, so reading the next one costs a third of a token per
// generated token.
constexpr int kGrowth = 4;

int RoundedUp(int number, int step) { return (number + step - 1) / step * step; }

struct WindowedState final : DraftState {
  std::unique_ptr<DraftState> inner;
  int begin_length = 0;  // length of the text when reading began; 0 before that
  int num_skipped = 0;
  std::vector<TokenId> seen;

  static WindowedState& Of(DraftState* state) { return *static_cast<WindowedState*>(state); }
};

class WindowedDrafter final : public Drafter {
 public:
  WindowedDrafter(std::unique_ptr<Drafter> inner, const DraftWindow& window)
      : inner_(std::move(inner)), window_(window) {}

  std::string_view name() const override { return inner_->name(); }
  bool is_drawn() const override { return inner_->is_drawn(); }
  TokenId mask_token() const override { return inner_->mask_token(); }
  int num_unpacked() const override { return inner_->num_unpacked(); }
  absl::Status CheckIntegrity() const override { return inner_->CheckIntegrity(); }

  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override {
    auto state = std::make_unique<WindowedState>();
    state->inner = inner_->NewStateOf(kind, {}, std::move(tenant));
    AdoptLongerPrefix(state.get(), prompt, KvSequence());
    return state;
  }

  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override {
    WindowedState& s = WindowedState::Of(state);
    return inner_->Options(s.inner.get(), See(&s, context, static_cast<int>(context.size())));
  }

  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    std::vector<DraftRequest> inner(requests.begin(), requests.end());
    for (DraftRequest& request : inner) {
      WindowedState& s = WindowedState::Of(request.state);
      const auto length = static_cast<int>(request.context.size());
      request.context = See(&s, request.context, std::max(length, request.num_committed));
      request.num_skipped = length - static_cast<int>(request.context.size());
      request.state = s.inner.get();
    }
    return inner_->Propose(inner, proposals);
  }

  void Rollback(DraftState* state, int length) override {
    WindowedState& s = WindowedState::Of(state);
    if (length >= DraftWindow::kSinks + s.num_skipped) {
      return inner_->Rollback(s.inner.get(), length - s.num_skipped);
    }
    inner_->Rollback(s.inner.get(), std::min(length, DraftWindow::kSinks));
    s.begin_length = 0;
    s.num_skipped = 0;
  }

  int NumCached(const DraftState& state) const override {
    return inner_->NumCached(*static_cast<const WindowedState&>(state).inner);
  }

  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override {
    WindowedState& s = WindowedState::Of(state);
    inner_->Publish(s.inner.get(), See(&s, tokens, static_cast<int>(tokens.size())));
  }

  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override {
    WindowedState& s = WindowedState::Of(state);
    inner_->AdoptLongerPrefix(s.inner.get(), See(&s, tokens, static_cast<int>(tokens.size())),
                              target_kv);
  }

  std::optional<CachedText> TextOf(DraftState* state, absl::Span<const TokenId> tokens) override {
    WindowedState& s = WindowedState::Of(state);
    return inner_->TextOf(s.inner.get(), See(&s, tokens, static_cast<int>(tokens.size())));
  }

 private:
  // Returns the window of `context`, the first tokens of a text of `num_committed` tokens. Valid
  // until the state changes.
  absl::Span<const TokenId> See(WindowedState* state, absl::Span<const TokenId> context,
                                int num_committed) {
    if (state->begin_length == 0 || inner_->NumCached(*state->inner) == 0) {
      state->begin_length = num_committed;
    }
    const int num_skipped = window_.NumSkipped(state->begin_length, num_committed);
    if (num_skipped != state->num_skipped) {
      inner_->Rollback(state->inner.get(), DraftWindow::kSinks);
      state->num_skipped = num_skipped;
    }
    if (state->num_skipped == 0) return context;
    const size_t resumed = DraftWindow::kSinks + state->num_skipped;
    if (context.size() <= resumed) return {};  // a partial prompt; the sinks are read later
    state->seen.assign(context.begin(), context.begin() + DraftWindow::kSinks);
    state->seen.insert(state->seen.end(), context.begin() + resumed, context.end());
    return state->seen;
  }

  const std::unique_ptr<Drafter> inner_;
  const DraftWindow window_;
};

}  // namespace

DraftWindow DraftWindow::Of(int draft_window, const Contexts& contexts) {
  const int recent = draft_window == kAutoDraftWindow ? kAutoRecent : draft_window;
  const int readable = contexts.reads_other_tokens ? contexts.draft / 2 : contexts.draft;
  const int most = readable - kSinks - kMaxDraftTokens;
  if (recent == 0 || most < 1 || contexts.target - kSinks <= recent) return {};
  return {.recent = std::min(recent, most),
          .most = recent < most / kGrowth ? recent * kGrowth : most};
}

int DraftWindow::NumSkipped(int begin_length, int length) const {
  TANDEM_CHECK(recent > 0);
  const int step = std::max(1, recent / 4);
  int skipped = 0;
  if (const int beyond = begin_length - kSinks - recent; beyond > 0) {
    skipped = RoundedUp(beyond, step);
  }
  if (const int beyond = length - kSinks - skipped - most; beyond > 0) {
    skipped += RoundedUp(beyond, std::max({1, most - recent, most / 2}));
  }
  return skipped;
}

std::unique_ptr<Drafter> ShowWindow(std::unique_ptr<Drafter> inner, const DraftWindow& window) {
  return std::make_unique<WindowedDrafter>(std::move(inner), window);
}

}  // namespace tandem
