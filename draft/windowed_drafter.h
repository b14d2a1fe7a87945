#ifndef TANDEM_DRAFT_WINDOWED_DRAFTER_H_
#define TANDEM_DRAFT_WINDOWED_DRAFTER_H_

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "draft/drafter.h"

namespace tandem {

// Which tokens of a long text a draft model reads: the first kSinks, and those from a later one on.
struct DraftWindow {
  static constexpr int kSinks = 4;  // as in Xiao et al. 2023 (arXiv 2309.17453)
  static constexpr int kAutoRecent = 512;

  int recent = 0;  // the most tokens after the sinks where reading begins; 0: no window
  int most = 0;    // the most that they may become before the window moves

  // The longest texts, in tokens of each model.
  struct Contexts {
    int target = 0;
    int draft = 0;
    // The draft has a vocabulary of its own, and may need up to twice as many tokens for a text.
    bool reads_other_tokens = false;
  };
  // The window of the option `draft_window`. It fits the draft's context, which the text may
  // outgrow. None where the target's texts are no longer than the window.
  static DraftWindow Of(int draft_window, const Contexts& contexts);

  // How many tokens after the sinks are skipped in a text of `length` tokens that had
  // `begin_length` when the draft began to read it. Never falls as `length` grows. In large steps,
  // so that texts that begin alike and have about the same length share pages of the cache.
  // REQUIRES: recent > 0.
  int NumSkipped(int begin_length, int length) const;
};

// Shows a drafter the window in place of the text. The shorter text is a text like any other, with
// positions from 0 on: its pages in the cache depend on its tokens alone, so they are shared
// under the usual rules, and drafts are recorded with the distributions that they were drawn from.
//
// The window moves when it has grown to DraftWindow::most, and is chosen anew where nothing is
// cached. The first DraftWindow::kSinks tokens stay cached when it moves.
class WindowedDrafter final : public Drafter {
 public:
  // REQUIRES: window.recent > 0.
  WindowedDrafter(std::unique_ptr<Drafter> inner, const DraftWindow& window)
      : inner_(std::move(inner)), window_(window) {}

  std::string_view name() const override { return inner_->name(); }
  bool is_drawn() const override { return inner_->is_drawn(); }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  int NumCached(const DraftState& state) const override;
  int num_unpacked() const override { return inner_->num_unpacked(); }
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override;
  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override;
  std::optional<CachedText> TextOf(DraftState* state, absl::Span<const TokenId> tokens) override;
  absl::Status CheckIntegrity() const override { return inner_->CheckIntegrity(); }

 private:
  struct State;
  // The window of `context`, the first tokens of a text of `num_committed`. Valid until the state
  // changes.
  absl::Span<const TokenId> See(State* state, absl::Span<const TokenId> context, int num_committed);

  std::unique_ptr<Drafter> inner_;
  DraftWindow window_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_WINDOWED_DRAFTER_H_
