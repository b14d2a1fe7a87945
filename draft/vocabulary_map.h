#ifndef TANDEM_DRAFT_VOCABULARY_MAP_H_
#define TANDEM_DRAFT_VOCABULARY_MAP_H_

#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// One model's side of a vocabulary map.
struct Vocabulary {
  const Tokenizer* tokenizer = nullptr;
  int size = 0;  // number of ids that the model reads; may differ from the tokenizer's
  absl::Span<const TokenId> end_tokens;
};

// Maps between a target's tokens and those of a draft model with another vocabulary. Pairs tokens
// with the same text, and gives for each target token the draft tokens that the draft reads in its
// place. docs/drafting/vocabularies.md has the rule and its reasons. Thread-safe.
class VocabularyMap {
 public:
  // A token of each model with the same meaning.
  struct Pair {
    TokenId target = 0;
    TokenId draft = 0;
  };
  // In a reading: the draft's tokens cannot represent this token's text.
  static constexpr TokenId kUnreadable = -1;

  // Pairs tokens with the same bytes and finds readings for all others. Takes time linear in the
  // text of both vocabularies. Keeps no reference to the tokenizers.
  VocabularyMap(const Vocabulary& target, const Vocabulary& draft);
  // Makes a map from its parts. `readings`: [target tokens].
  // REQUIRES: no token is in two pairs.
  VocabularyMap(std::vector<Pair> pairs, const std::vector<std::vector<TokenId>>& readings);

  // Whether each id below the target's size means the same token to both models, so that a map is
  // not needed. Checks every token of the target's tokenizer, and the draft's tokens among these
  // ids.
  static bool HasSameIds(const Vocabulary& target, const Vocabulary& draft);

  // The tokens that the draft can propose, by ascending target id.
  absl::Span<const Pair> pairs() const { return pairs_; }
  // Returns the draft tokens to read in place of a target token: its paired token, several tokens,
  // an empty span (special tokens that the draft lacks), or a single kUnreadable.
  // REQUIRES: 0 <= target < target_size().
  absl::Span<const TokenId> Reading(TokenId target) const {
    TANDEM_DCHECK(0 <= target && target < target_size());
    return absl::MakeConstSpan(readings_).subspan(ends_[target], ends_[target + 1] - ends_[target]);
  }
  int target_size() const { return static_cast<int>(ends_.size()) - 1; }

  // Converts the draft's logits (of all its tokens or the first ones) to a row over the target's
  // tokens, [target_size()]. Tokens that the draft cannot propose get -infinity.
  void ToTargetRow(absl::Span<const float> draft_logits, std::vector<float>* row) const;

  // How many text tokens each model has, and how many are paired. Special tokens are not counted.
  struct Counts {
    int target = 0;
    int draft = 0;
    int paired = 0;
  };
  const Counts& counts() const { return counts_; }
  // The same for tokens of more than one byte, which make up most of a text.
  const Counts& long_counts() const { return long_counts_; }

 private:
  void SetReadings(const std::vector<std::vector<TokenId>>& readings);

  std::vector<Pair> pairs_;
  std::vector<TokenId> readings_;  // of all target tokens, one after the other
  std::vector<int> ends_;          // [target tokens + 1]
  Counts counts_;
  Counts long_counts_;
};

}  // namespace tandem

#endif  // TANDEM_DRAFT_VOCABULARY_MAP_H_
