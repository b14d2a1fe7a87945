// Bounds on the lengths of JSON strings, counted along an output. A grammar that counts would be as
// large as its bounds; so grammars leave lengths open, and mark the rules that have bounds.
#ifndef TANDEM_CONSTRAINT_STRING_LENGTHS_H_
#define TANDEM_CONSTRAINT_STRING_LENGTHS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// Inclusive ranges of characters, ascending and apart; -1 in the last: without end.
using LengthRanges = std::vector<std::pair<int64_t, int64_t>>;

// Sorted, and joined where they touch.
LengthRanges JoinedRanges(LengthRanges ranges);

// How far a JSON string has come since its opening quote. A character is a code point of the
// string that is meant: an escape counts as one, and so do two escapes of a surrogate pair.
class StringProgress {
 public:
  // Takes in a byte within the string; an unescaped quote ends it.
  // REQUIRES: the string has not ended, and is right so far.
  void Add(char byte);
  bool has_ended() const { return has_ended_; }
  int64_t num_characters() const { return num_characters_; }  // begun
  // Neither within an escape nor before the second one of a surrogate pair.
  bool is_between_characters() const { return num_escape_left_ == 0 && !is_high_; }

  bool operator==(const StringProgress&) const = default;

 private:
  int64_t num_characters_ = 0;
  int8_t num_escape_left_ = 0;  // bytes of an escape; -1 right after its backslash
  uint16_t code_ = 0;           // of the escape so far, or of the last one
  bool is_high_ = false;        // the last character is a high surrogate, whose low one follows
  bool has_ended_ = false;
};

// Whether a string that has come so far may still become one of these lengths, or has.
bool AreWithin(const LengthRanges& ranges, const StringProgress& progress);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_STRING_LENGTHS_H_
