#ifndef TANDEM_DRAFT_MODEL_DRAFTER_H_
#define TANDEM_DRAFT_MODEL_DRAFTER_H_

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

// Drafts with a smaller language model that has a cache of its own, one token a step, all sequences
// of the batch in one pass. After a fully accepted round its cache lags by the last draft token,
// which it never read; the next round's first step feeds what is missing.
//
// Proposes nothing for a sequence that is out of the draft's context or pages, or holds a token
// that the draft model does not know.
class ModelDrafter final : public Drafter {
 public:
  // `model` and `cache` must outlive the drafter and its states. `target_vocab_size`: draft ids
  // from there on are never proposed. `chunk_tokens`: rows per pass while reading a prompt.
  ModelDrafter(LanguageModel* model, PagedKvCache* cache, int target_vocab_size, int chunk_tokens);

  std::string_view name() const override { return "model"; }
  std::unique_ptr<DraftState> NewState(absl::Span<const TokenId> prompt) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  void Rollback(DraftState* state, int length) override;
  void Publish(DraftState* state, absl::Span<const TokenId> tokens) override;

 private:
  struct Draft;  // one request's progress through a Propose

  // How many tokens behind `context` can be drafted; 0 also if it holds a token that the draft does
  // not know.
  int Room(const KvSequence& kv, absl::Span<const TokenId> context) const;
  absl::Status CatchUp(absl::Span<Draft> drafts);
  absl::Status Step(absl::Span<Draft> drafts);
  bool DrawNext(Draft* draft, absl::Span<const float> logits);

  LanguageModel* model_;
  PagedKvCache* cache_;
  int target_vocab_size_;
  int chunk_tokens_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_MODEL_DRAFTER_H_
