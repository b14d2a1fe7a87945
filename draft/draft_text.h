#ifndef TANDEM_DRAFT_DRAFT_TEXT_H_
#define TANDEM_DRAFT_DRAFT_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// The tokens of some texts, and an index that finds the longest run of tokens at the end of another
// text, whatever its length: all places, ordered by the tokens before them, read backwards. It
// takes 8 bytes for each token. Immutable.
class DraftText {
 public:
  static constexpr int kShortestMatch = 3;  // shorter runs occur in too many places
  static constexpr int kLongestMatch = 32;

  explicit DraftText(absl::Span<const std::vector<TokenId>> texts);

  struct Match {
    int length = 0;            // matching tokens, up to kLongestMatch; 0 without a match
    size_t next = 0;           // the place after them
    bool is_repeated = false;  // another match of some length continues with the same token
  };
  // Finds the longest run of at least kShortestMatch tokens at the end of `context`. Takes time in
  // proportion to the logarithm of num_tokens().
  Match Find(absl::Span<const TokenId> context) const;
  // The tokens from this place to the end of their text, at most kMaxDraftTokens.
  absl::Span<const TokenId> From(size_t place) const;

  int64_t num_tokens() const { return num_tokens_; }
  int64_t bytes() const;

 private:
  static constexpr TokenId kEnd = -1;  // of a text

  // How many tokens before this place equal the last ones of `context`.
  int CommonLength(absl::Span<const TokenId> context, size_t place) const;

  int64_t num_tokens_ = 0;
  std::vector<TokenId> tokens_;   // of all texts, each with kEnd after it
  std::vector<uint32_t> places_;  // of tokens that have kShortestMatch tokens before them
};

// The texts of one tenant.
using DraftTextList = std::vector<std::shared_ptr<const DraftText>>;

// The best match in any of `texts`: the longest, in the first text among equals. `text` is null
// without one.
struct DraftTextMatch {
  const DraftText* text = nullptr;
  DraftText::Match match;
};
DraftTextMatch FindInTexts(const DraftTextList& texts, absl::Span<const TokenId> context);

}  // namespace tandem

#endif  // TANDEM_DRAFT_DRAFT_TEXT_H_
