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
#include "tandem/types.h"

namespace tandem {

// Drafts with a smaller language model that has its own cache: one token per step, all sequences of
// the batch in one pass. After a fully accepted round the cache lags by the last draft token, which
// was never read; the next round's first step reads the missing tokens.
//
// A draft with another vocabulary than the target reads and proposes through a VocabularyMap: its
// cache holds its own tokens, while proposals and their distributions are over the target's.
//
// A model whose head is cut to some ids (LanguageModel::head_ids) proposes only these. The head may
// change between rounds.
//
// A model with a mask token drafts in one pass instead: the unread tokens and k - 1 masks, where
// the row of the last token proposes the first token, and the row of each mask the next one
// (docs/drafting/parallel_drafts.md). Masks leave the cache after the pass.
//
// Proposes nothing for a sequence that exceeds the draft's context or pages, or that contains a
// token that the draft model cannot read. The oldest states have priority for pages: when pages run
// out, the youngest state is evicted and drafts nothing until all of its unread tokens fit again.
class ModelDrafter final : public Drafter {
 public:
  // The pointers must outlive the drafter and its states. `target_vocab_size`: ids from there on
  // are never proposed. `chunk_tokens`: rows per pass while reading a prompt. `vocabulary`: null if
  // equal ids mean the same token to both models. `mask_token`: an id of the model, or kNoMaskToken
  // for one token per step.
  // REQUIRES: vocabulary == nullptr or vocabulary->target_size() == target_vocab_size.
  ModelDrafter(LanguageModel* model, PagedKvCache* cache, int target_vocab_size, int chunk_tokens,
               const VocabularyMap* vocabulary = nullptr, TokenId mask_token = kNoMaskToken);

  std::string_view name() const override { return "model"; }
  TokenId mask_token() const override { return mask_token_; }
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
  struct Draft;  // progress of one request in Propose

  // Converts `context` to the draft's tokens. Valid until the state changes.
  absl::Span<const TokenId> Read(State* state, absl::Span<const TokenId> context) const;
  KvSequence Begin(absl::Span<const TokenId> prompt, CacheSalt salt);
  // Converts a drafted token to the draft's token, always exactly one.
  absl::Span<const TokenId> ReadDrafted(const TokenId& token) const;
  // Returns how many tokens can be drafted after `text`, which is in the draft's tokens. 0 also if
  // the draft cannot read one of its unread tokens.
  int Room(const KvSequence& kv, absl::Span<const TokenId> text) const;
  // Returns the number of pages that only younger states than `state` hold.
  int64_t PagesOfYounger(const State& state) const;
  void MakeRoom(absl::Span<Draft> drafts);
  absl::Status CatchUp(absl::Span<Draft> drafts);

  bool drafts_in_one_pass() const { return mask_token_ != kNoMaskToken; }
  void AddMasks(absl::Span<Draft> drafts);

  struct DeviceTasks;
  bool StaysOnDevice(const Draft& draft);
  void PlanOnDevice(absl::Span<Draft> drafts);
  absl::Span<const TokenId> TokensOfPass(const Draft& draft, int slot) const;
  std::vector<Draft*> DraftsOfPass(absl::Span<Draft> drafts, int slot);
  DeviceTasks TasksOf(absl::Span<Draft> drafts);
  absl::Status DrawTokens(absl::Span<Draft> drafts);
  absl::Status DrawInOnePass(absl::Span<Draft> drafts);
  absl::Status CollectDrawn(const DeviceTasks& tasks);

  LanguageModel* model_;
  PagedKvCache* cache_;
  int target_vocab_size_;
  int chunk_tokens_;
  const VocabularyMap* vocabulary_;
  TokenId mask_token_;
  RowDrawer drawer_;
  DeviceRowPool rows_;
  std::shared_ptr<States> states_ = std::make_shared<States>();  // all states, oldest first
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_MODEL_DRAFTER_H_
