// Bounds on the lengths of JSON strings, which are counted while an output is followed. A grammar
// that counts would be as large as its bounds. Grammars therefore leave lengths open, and mark the
// rules that have bounds.
#ifndef TANDEM_TEXT_CONSTRAINT_STRING_LENGTHS_H_
#define TANDEM_TEXT_CONSTRAINT_STRING_LENGTHS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// Inclusive ranges of numbers of characters, ascending and not adjacent. A maximum of -1, in the
// last range, means unlimited.
using LengthRanges = std::vector<std::pair<int64_t, int64_t>>;

// Sorts the ranges, and joins those that overlap or touch.
LengthRanges JoinedRanges(LengthRanges ranges);

// The state of a JSON string after some bytes since its opening quote. A character is a code point
// of the decoded string: an escape counts as one, and so do the two escapes of a surrogate pair.
class StringProgress {
 public:
  // Reads the next byte of the string. An unescaped quote ends it.
  // REQUIRES: the string has not ended and is valid so far.
  void Add(char byte);
  bool has_ended() const { return has_ended_; }
  int64_t num_characters() const { return num_characters_; }  // including a partial one
  // Whether the next byte is neither within an escape nor in the second half of a surrogate pair.
  bool is_between_characters() const { return num_escape_left_ == 0 && !is_high_; }

  bool operator==(const StringProgress&) const = default;

 private:
  int64_t num_characters_ = 0;
  int8_t num_escape_left_ = 0;  // bytes left of an escape; -1 right after its backslash
  uint16_t code_ = 0;           // of the current or the last \u escape
  bool is_high_ = false;        // whether the last escape is a high surrogate
  bool has_ended_ = false;
};

// Returns whether the string has an allowed length if it has ended, or may still get one if not.
bool AreWithin(const LengthRanges& ranges, const StringProgress& progress);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_STRING_LENGTHS_H_
