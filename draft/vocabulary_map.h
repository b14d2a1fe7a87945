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
  int size = 0;  // tokens that the model reads; the tokenizer may have fewer tokens, or more
  absl::Span<const TokenId> end_tokens;
};

// How a draft model of other tokens speaks and reads the target's: which tokens of the two are the
// same text, and what the draft reads in place of each of the target's. The rule, with its reasons:
// docs/vocabularies.md. Thread-safe.
class VocabularyMap {
 public:
  // A token of each model that stand for the same.
  struct Pair {
    TokenId target = 0;
    TokenId draft = 0;
  };
  // Of a reading: the draft cannot write this token's text.
  static constexpr TokenId kUnreadable = -1;

  // Pairs tokens of the same bytes and finds readings for all others. Time is linear in the text of
  // both vocabularies. Nothing of the tokenizers is kept.
  VocabularyMap(const Vocabulary& target, const Vocabulary& draft);
  // From what it is made of. `readings`: [target tokens]. No token is in two pairs.
  VocabularyMap(std::vector<Pair> pairs, const std::vector<std::vector<TokenId>>& readings);

  // Whether every token of the target's tokenizer is the draft's of the same id, and the draft has
  // no others among the target's ids: then no map is wanted.
  static bool HasSameIds(const Vocabulary& target, const Vocabulary& draft);

  // Tokens that the draft can propose, by ascending target id.
  absl::Span<const Pair> pairs() const { return pairs_; }
  // What the draft reads in place of a target's token: one token of a pair, several, none (special
  // tokens that it does not have), or one that is kUnreadable.
  // REQUIRES: 0 <= target < target_size().
  absl::Span<const TokenId> Reading(TokenId target) const {
    TANDEM_DCHECK(0 <= target && target < target_size());
    return absl::MakeConstSpan(readings_).subspan(ends_[target], ends_[target + 1] - ends_[target]);
  }
  int target_size() const { return static_cast<int>(ends_.size()) - 1; }

  // The draft's logits, of its first tokens, as a row over the target's tokens, [target_size()]:
  // -infinity for those that it cannot propose.
  void ToTargetRow(absl::Span<const float> draft_logits, std::vector<float>* row) const;

  // Tokens of text, special ones not counted: what pairing them came to.
  struct Counts {
    int target = 0;
    int draft = 0;
    int paired = 0;
  };
  const Counts& counts() const { return counts_; }
  // The same of those with more than one byte, which most of a text consists of.
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
