#ifndef TANDEM_DRAFT_NGRAM_DRAFTER_H_
#define TANDEM_DRAFT_NGRAM_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "draft/drafter.h"
#include "tandem/types.h"

namespace tandem {

// Earlier occurrences of a text's end: for each run of up to kLongestKey tokens, the two latest
// places that follow it. Appending a token costs kLongestKey hash entries,
// whatever the length of the text.
class NgramIndex {
 public:
  static constexpr int kLongestKey = 6;

  struct Match {
    int length = 0;  // tokens before the end that stood there too, up to kLongestMatch; 0 if none
    int next = 0;    // the latest place that follows them
    bool is_repeated = false;  // the place before that one went on with the same token
  };
  static constexpr int kLongestMatch = 32;

  // Indexes the tokens of `text` after the first length().
  // REQUIRES: text begins with the tokens that are indexed already.
  void Extend(absl::Span<const TokenId> text);
  int length() const { return length_; }
  void Clear();

  // The longest run of tokens at the end of `text`, taken in, that stood earlier in it.
  Match Find(absl::Span<const TokenId> text) const;

 private:
  // The latest two places that follow one run of tokens; -1 for none.
  struct Places {
    int32_t latest = -1;
    int32_t before = -1;
  };

  // By a hash of the run's tokens and length; a hit is compared with the text.
  absl::flat_hash_map<uint64_t, Places> places_;
  int length_ = 0;
};

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
