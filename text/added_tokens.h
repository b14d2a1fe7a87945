#ifndef TANDEM_TEXT_ADDED_TOKENS_H_
#define TANDEM_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "base/hash_map.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// An entry of "added_tokens": a token that is found in the text itself, before all other
// processing.
struct AddedToken {
  TokenId id = 0;
  std::string content;  // the string to find
  std::string written;  // the token's written form, often the same
  bool special = false;
  bool is_literal = false;   // decodes to its content, not to the decoder's output
  bool single_word = false;  // matches only where no word character touches it
  bool left_strip = false;   // includes the white space before it
  bool right_strip = false;  // includes the white space after it
  bool normalized = false;   // is looked for in the normalised text
};

// A part of a text: an added token, or the text between two.
struct TextPart {
  std::string_view text;
  TokenId added_id = -1;  // -1: ordinary text
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};
// Returns the first of `ranges`, which are in order, that overlaps `range`; null if none does.
const TextRange* FirstOverlap(absl::Span<const TextRange> ranges, TextRange range);

// Finds added tokens: the leftmost match, at one place the longest, among equal ones the first of
// the list. Takes time proportional to the text's length times the longest token's. Thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // REQUIRES: no content is empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Cuts `text` into parts, in order. A special token that overlaps one of `plain` is ordinary
  // text. Ordinary parts are never empty. REQUIRES: `plain` is in order.
  std::vector<TextPart> Cut(std::string_view text, absl::Span<const TextRange> plain) const;

 private:
  const AddedToken* LongestAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // The contents as a trie of bytes.
  struct Node {
    int token = -1;  // index in tokens_ of the token that ends here, or -1
    HashMap<char, int> children;
  };
  std::vector<Node> nodes_;
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace tandem

#endif  // TANDEM_TEXT_ADDED_TOKENS_H_
