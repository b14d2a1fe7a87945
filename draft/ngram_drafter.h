#ifndef TANDEM_DRAFT_NGRAM_DRAFTER_H_
#define TANDEM_DRAFT_NGRAM_DRAFTER_H_

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/ngram_index.h"

namespace tandem {

// Prompt lookup (Saxena 2023): proposes what followed the last time that the text ended as it does
// now, in the prompt or in the output; or, as another option, what mostly followed in texts of its
// tenant (TextMemory). Its tokens are not drawn: each is proposed with certainty.
class NgramDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "ngram"; }
  bool is_drawn() const override { return false; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  // Only committed tokens are remembered: mostly there is nothing to forget.
  void Rollback(DraftState* state, int length) override;
  void Evict(DraftState* /*state*/) override {}  // it holds no pages

  // The evidence of a match, in [0, kNumEvidence): its length, and whether the text went on alike
  // the last two times.
  static int EvidenceOf(const NgramIndex::Match& match);
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_NGRAM_DRAFTER_H_
