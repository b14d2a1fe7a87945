#ifndef TANDEM_DRAFT_HEAD_DRAFTER_H_
#define TANDEM_DRAFT_HEAD_DRAFTER_H_

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/row_drawer.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

// Drafts with a head: a model of one layer that reads the target's states next to tokens, and
// stores its layer in the target's pages (docs/drafting/draft_heads.md). The row for the token at
// position s reads that token and the target's state at s - 1. So it depends only on tokens up to
// s, like the target's own keys. Position 0 does not have a row.
//
// The first step of a draft computes the rows that the sequence lacks, from the target's states.
// Each further step computes one row from the head's own state. The rows of further steps are
// dropped after each round, whether or not their tokens were accepted. A page that becomes full is
// completed at once (ReadStates), so that it can be published.
//
// Tokens are drawn on the host.
class HeadDrafter final : public Drafter {
 public:
  struct Parts {
    LanguageModel* head = nullptr;
    const LanguageModel* target = nullptr;  // states() has head->read_state_size() floats a row
    Backend* backend = nullptr;             // of both models and of the cache
    int page_size = 0;                      // of the target's cache, whose pages hold states
    int target_vocab_size = 0;
    int chunk_tokens = 256;  // rows per pass while reading
  };
  // The pointers must outlive the drafter and its states.
  explicit HeadDrafter(const Parts& parts);

  std::string_view name() const override { return "eagle3"; }
  // The sequence drafts if `kind` has a model. If not, the state only keeps the layer complete.
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
  struct Draft;    // progress of one request in Propose
  struct Reading;  // progress of one sequence in ReadStates

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
  Buffer scratch_;  // states of the rows to read, f32 [rows, read_state_size]
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_HEAD_DRAFTER_H_
