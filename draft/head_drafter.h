#ifndef TANDEM_DRAFT_HEAD_DRAFTER_H_
#define TANDEM_DRAFT_HEAD_DRAFTER_H_

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/row_drawer.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

// Drafts with a head: a model of one layer that reads the target's states next to tokens, and whose
// layer lies in the target's pages (docs/draft_heads.md). Its row for the token at position s reads
// that token and the target's state at s - 1, so it depends on tokens up to s only, like the
// target's own keys. Position 0 has none.
//
// A draft's first step computes the rows that the sequence lacks from the target's states, the
// further ones a row each from the head's own. The latter are forgotten after each round, accepted
// or not. A page that becomes full is completed at once (ReadStates), so that it can be published.
//
// Tokens are drawn on the host.
class HeadDrafter final : public Drafter {
 public:
  struct Parts {
    LanguageModel* head = nullptr;
    const LanguageModel* target = nullptr;  // whose passes leave head->read_state_size() floats
    Backend* backend = nullptr;             // of both, and of the cache
    int page_size = 0;                      // of the target's cache, whose pages have states
    int target_vocab_size = 0;
    int chunk_tokens = 256;  // rows per pass while reading
  };
  // The pointers must outlive the drafter and its states.
  explicit HeadDrafter(const Parts& parts);

  std::string_view name() const override { return "eagle3"; }
  // One that drafts if `kind` has a model; else it only keeps the layer.
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  int num_unpacked() const override { return parts_.head->num_unpacked(); }
  bool shares_target_cache() const override { return true; }
  absl::Status ReadStates(absl::Span<const TargetRows> rows) override;
  bool HoldsFullPages(const DraftState& state, const KvSequence& kv) const override;
  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override;
  void Evict(DraftState* state) override;

 private:
  struct State;
  struct Draft;    // one request's progress through a Propose
  struct Reading;  // one sequence's through a ReadStates

  size_t state_bytes() const { return parts_.head->read_state_size() * sizeof(float); }
  bool CanDraft(const State& state, int context_length) const;
  absl::Status Reserve(size_t bytes, Buffer* buffer);
  void CopyStates(const TargetRows& of, int begin, int end, std::byte* to);
  void KeepPageStates(const TargetRows& of);
  std::byte* PendingOf(const State& state, int row) const;
  void KeepLastOnly(State* state, int target_length);
  absl::Status Read(absl::Span<Reading> readings);
  absl::Status DrawTokens(absl::Span<Draft> drafts);
  std::vector<Draft*> DraftsOfStep(absl::Span<Draft> drafts, int step) const;

  Parts parts_;
  RowDrawer drawer_;
  Buffer scratch_;  // states of rows to be read, f32 [rows, read_state_size]
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_HEAD_DRAFTER_H_
