#ifndef TANDEM_DRAFT_NGRAM_DRAFTER_H_
#define TANDEM_DRAFT_NGRAM_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/hash_map.h"
#include "draft/draft_text.h"
#include "draft/drafter.h"
#include "tandem/types.h"

namespace tandem {

// Finds earlier occurrences of the end of a text. Maps each run of up to kLongestKey tokens to the
// two latest places after it. Appending a token costs kLongestKey hash entries, whatever the length
// of the text.
class NgramIndex {
 public:
  static constexpr int kLongestKey = 6;

  struct Match {
    int length = 0;            // matching tokens, up to kLongestMatch; 0 without a match
    int next = 0;              // the place after their latest earlier occurrence
    bool is_repeated = false;  // the occurrence before that one continues with the same token
  };
  static constexpr int kLongestMatch = 32;

  // Indexes the tokens of `text` from position length() on.
  // REQUIRES: text begins with the tokens that are already indexed.
  void Extend(absl::Span<const TokenId> text);
  int length() const { return length_; }
  void Clear();

  // Returns the longest run at the end of `text` that also occurs earlier in it.
  // REQUIRES: all of `text` is indexed.
  Match Find(absl::Span<const TokenId> text) const;

 private:
  // The latest two places after a run of tokens; -1 where there is no such place.
  struct Places {
    int32_t latest = -1;
    int32_t before = -1;
  };

  // Keyed by a hash of the run. A hit is compared with the text.
  HashMap<uint64_t, Places> places_;
  int length_ = 0;
};

// Prompt lookup (Saxena 2023): proposes the tokens that followed the latest earlier occurrence of
// the text's end, in the prompt or in the output. A second option proposes the tokens that usually
// followed in texts of the same tenant (TextMemory), and a third the tokens after the longest match
// in the texts that the tenant was given to draft from (DraftText). Tokens are not drawn: each is
// proposed with certainty.
class NgramDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "ngram"; }
  bool is_drawn() const override { return false; }
  std::unique_ptr<DraftState> NewStateOf(DrafterKind kind, absl::Span<const TokenId> prompt,
                                         std::shared_ptr<const Tenant> tenant) override;
  std::vector<DraftOption> Options(DraftState* state, absl::Span<const TokenId> context) override;
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override;
  // The index holds committed tokens only, so this is usually a no-op.
  void Rollback(DraftState* state, int length) override;
  void Evict(DraftState* /*state*/) override {}  // holds no pages

  // Returns the evidence class of a match, in [0, kNumEvidence). It depends on the length, and on
  // whether the last two occurrences continue with the same token.
  static int EvidenceOf(const NgramIndex::Match& match);
  // The same for a match in a given text, and whether other matches there continue alike.
  static int TextEvidenceOf(const DraftText::Match& match);
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_NGRAM_DRAFTER_H_
