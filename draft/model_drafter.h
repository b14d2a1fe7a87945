#ifndef TANDEM_DRAFT_MODEL_DRAFTER_H_
#define TANDEM_DRAFT_MODEL_DRAFTER_H_

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/row_drawer.h"
#include "draft/vocabulary_map.h"
#include "kvcache/paged_kv_cache.h"
#include "model/device_sampling.h"
#include "model/language_model.h"

namespace tandem {

// Drafts with a smaller language model that has a cache of its own, one token a step, all sequences
// of the batch in one pass. After a fully accepted round its cache lags by the last draft token,
// which it never read; the next round's first step feeds what is missing.
//
// A draft with other tokens than the target's reads and proposes through a VocabularyMap: its cache
// is over its own tokens, proposals and what they were drawn from are over the target's.
//
// A model whose head was cut to some ids (LanguageModel::head_ids) proposes these alone. The head
// may change between rounds.
//
// Proposes nothing for a sequence that is out of the draft's context or pages, or holds a token
// that the draft model cannot read. Pages go to the oldest states: when they run out the youngest
// gives its own back, and does without drafts until all that it has to read fits again.
class ModelDrafter final : public Drafter {
 public:
  // The pointers must outlive the drafter and its states. `target_vocab_size`: ids from there on
  // are never proposed. `chunk_tokens`: rows per pass while reading a prompt. `vocabulary`: null if
  // the two models' ids mean the same.
  // REQUIRES: vocabulary == nullptr or vocabulary->target_size() == target_vocab_size.
  ModelDrafter(LanguageModel* model, PagedKvCache* cache, int target_vocab_size, int chunk_tokens,
               const VocabularyMap* vocabulary = nullptr);

  std::string_view name() const override { return "model"; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  int NumCached(const DraftState& state) const override;
  int num_unpacked() const override { return model_->num_unpacked(); }
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override;
  void AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                         const KvSequence& target_kv) override;
  std::optional<CachedText> TextOf(DraftState* state, absl::Span<const TokenId> tokens) override;
  absl::Status CheckIntegrity() const override;

 private:
  struct State;
  using States = std::vector<State*>;
  struct Draft;  // one request's progress through a Propose

  // `context` in the draft's tokens; valid until the state changes.
  absl::Span<const TokenId> Read(State* state, absl::Span<const TokenId> context) const;
  KvSequence Begin(absl::Span<const TokenId> prompt, CacheSalt salt);
  // A drafted token in the draft's: one.
  absl::Span<const TokenId> ReadDrafted(const TokenId& token) const;
  // How many tokens behind `text` (the draft's) can be drafted; 0 also if it holds one that the
  // draft does not know.
  int Room(const KvSequence& kv, absl::Span<const TokenId> text) const;
  // Pages that only states younger than this one hold.
  int64_t PagesOfYounger(const State& state) const;
  void MakeRoom(absl::Span<Draft> drafts);
  absl::Status CatchUp(absl::Span<Draft> drafts);

  struct DeviceTasks;
  bool StaysOnDevice(const Draft& draft);
  void PlanOnDevice(absl::Span<Draft> drafts);
  absl::Span<const TokenId> TokensOfPass(const Draft& draft, int slot) const;
  std::vector<Draft*> DraftsOfPass(absl::Span<Draft> drafts, int slot);
  DeviceTasks TasksOf(absl::Span<Draft> drafts);
  absl::Status DrawTokens(absl::Span<Draft> drafts);
  absl::Status CollectDrawn(absl::Span<Draft> drafts, const DeviceTasks& tasks);

  LanguageModel* model_;
  PagedKvCache* cache_;
  int target_vocab_size_;
  int chunk_tokens_;
  const VocabularyMap* vocabulary_;
  RowDrawer drawer_;
  DeviceRowPool rows_;
  std::shared_ptr<States> states_ = std::make_shared<States>();  // that exist, oldest first
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_MODEL_DRAFTER_H_
