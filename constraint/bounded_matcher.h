// XGrammar's matcher, which also counts the characters of strings whose lengths its grammar leaves
// open.
#ifndef TANDEM_CONSTRAINT_BOUNDED_MATCHER_H_
#define TANDEM_CONSTRAINT_BOUNDED_MATCHER_H_

#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "constraint/string_lengths.h"
#include "tandem/types.h"

namespace tandem {

// What matchers of one grammar look up. Immutable.
class StringBounds {
 public:
  // lengths: of the rules with the marks 1, 2, ...; texts: of the tokens.
  StringBounds(std::vector<LengthRanges> lengths, const std::vector<std::string>& texts);

  const LengthRanges& OfMark(int mark) const { return lengths_[mark - 1]; }
  bool HasMark(int mark) const { return mark > 0 && mark <= static_cast<int>(lengths_.size()); }
  bool HasQuote(TokenId token) const { return num_characters_[token] < 0; }
  const std::vector<TokenId>& tokens_with_quotes() const { return tokens_with_quotes_; }
  // [vocab] characters that a token adds within a string; -1 for those with quotes.
  const std::vector<int>& num_characters() const { return num_characters_; }
  int max_characters() const { return max_characters_; }

 private:
  std::vector<LengthRanges> lengths_;
  std::vector<int> num_characters_;
  std::vector<TokenId> tokens_with_quotes_;
  int max_characters_ = 0;
};

// Where one output is. Copies are the same matcher, as XGrammar's are; Fork makes another.
// Whatever throws (WorkBudget) leaves a matcher of no use.
class BoundedMatcher {
 public:
  BoundedMatcher(const xgrammar::CompiledGrammar& grammar, const std::vector<int>& end_tokens,
                 std::shared_ptr<const StringBounds> bounds);
  BoundedMatcher Fork() const;

  bool IsTerminated() const { return matcher_.IsTerminated(); }
  // False, and nothing changes, if it may not come next.
  bool Accept(TokenId token);
  void Undo();  // the last token. REQUIRES: there is one.
  // Bit v % 32 of word v / 32: whether token v may come next. REQUIRES: is not terminated.
  void FillMask(absl::Span<uint32_t> mask);
  std::string Forced();

 private:
  // Within a marked rule, how far its string has come.
  struct Place {
    int mark = 0;
    StringProgress string{};
  };

  int CurrentMark() const;
  bool AcceptBytes(const std::string& text, std::vector<Place>* places);
  bool MayCome(TokenId token);
  void ClearLongTokens(absl::Span<uint32_t> mask) const;

  xgrammar::GrammarMatcher matcher_;
  std::shared_ptr<const StringBounds> bounds_;  // null: no rule has a mark
  const std::vector<std::string>* texts_;       // of the tokens; the grammar's
  xgrammar::CompiledGrammar grammar_;
  struct Step {
    int num_steps = 0;  // of the matcher
    Place place{};      // after it
  };
  std::vector<Step> steps_;  // one a token
};

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_BOUNDED_MATCHER_H_
