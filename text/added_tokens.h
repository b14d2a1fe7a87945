#ifndef TANDEM_TEXT_ADDED_TOKENS_H_
#define TANDEM_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// An entry of "added_tokens": a token that is found in the text itself, before everything else.
struct AddedToken {
  TokenId id = 0;
  std::string content;  // what is found
  std::string written;  // the token's own form, often the same
  bool special = false;
  bool is_literal = false;   // what it adds to a text is its content, not what the decoder makes
  bool single_word = false;  // only where no word character touches it
  bool left_strip = false;   // takes the white space before it along
  bool right_strip = false;  // and behind it
  bool normalized = false;   // is looked for in the normalised text
};

// A part of a text: an added token, or what lies between two.
struct TextPart {
  std::string_view text;
  TokenId added_id = -1;  // -1: ordinary text
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};
// The first of `ranges`, which are in order, that has a byte of `range`, or null.
const TextRange* FirstOverlap(absl::Span<const TextRange> ranges, TextRange range);

// Finds added tokens: the leftmost, of those that begin at one place the longest, of equals the
// first of the list. Time is the text's length times the longest token's. Thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // REQUIRES: no content is empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Cuts `text`; a special token that overlaps one of `plain` is ordinary text. Ordinary parts are
  // never empty. REQUIRES: `plain` is in order.
  std::vector<TextPart> Cut(std::string_view text, absl::Span<const TextRange> plain) const;

 private:
  const AddedToken* LongestAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // The contents as a tree of bytes.
  struct Node {
    int token = -1;  // of tokens_, that ends here
    absl::flat_hash_map<char, int> children;
  };
  std::vector<Node> nodes_;
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace tandem

#endif  // TANDEM_TEXT_ADDED_TOKENS_H_
