// The operations of Python's strings on UTF-8: slicing, splitting, character classes, letter case.
#ifndef TANDEM_TEXT_CHAT_JINJA_TEXT_TOOLS_H_
#define TANDEM_TEXT_CHAT_JINJA_TEXT_TOOLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

// str.isspace(): Unicode's White_Space and ASCII's four separators 0x1C to 0x1F.
bool IsSpace(char32_t code_point);

// The number of bytes of white space at the beginning and at the end of a text.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

size_t NumCharacters(std::string_view text);
// Returns the offset of each character's first byte, and the size of the text.
std::vector<size_t> CharacterOffsets(std::string_view text);

// The sides of a text that an operation changes.
struct Sides {
  bool left = true;
  bool right = true;
};
// str.strip: removes white space, or the characters of `chars` if it is not null.
MarkedText Stripped(const MarkedText& text, const std::string* chars, Sides sides);

// str.split and rsplit: split at `separator`, or at white space if it is null, at most `most` times
// (-1: no limit). REQUIRES: *separator is not empty.
std::vector<MarkedText> Split(const MarkedText& text, const std::string* separator, int64_t most);
std::vector<MarkedText> SplitFromRight(const MarkedText& text, const std::string* separator,
                                       int64_t most);
// str.splitlines, except that the text after the first `most` lines is one line.
std::vector<MarkedText> SplitLines(const MarkedText& text, bool keeps_ends, size_t most);
// Returns the number of places at which str.replace would replace `part`.
size_t NumPlaces(std::string_view text, std::string_view part);
// str.replace: replaces at most `most` times (-1: no limit). An empty `from` matches before and
// after every character.
MarkedText Replaced(const MarkedText& text, const std::string& from, const MarkedText& to,
                    int64_t most);

// str.upper(), lower(), capitalize(), title(), swapcase() and casefold() with Unicode's full
// mappings, which may turn a letter into several. They get the mark of the letter.
enum class LetterCase { kUpper, kLower, kCapitalized, kTitle, kSwapped, kFolded };
MarkedText WithCase(const MarkedText& text, LetterCase letter_case);

inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetterOf(char32_t code_point);  // a letter of any script
bool IsUpperCase(char32_t code_point);
bool IsLowerCase(char32_t code_point);
bool IsTitleCase(char32_t code_point);
// Each includes the one before: decimal digits, then digits such as superscripts, then all numbers.
bool IsDecimalDigit(char32_t code_point);
bool IsDigit(char32_t code_point);
bool IsNumeric(char32_t code_point);
bool IsLetterOrNumber(char32_t code_point);  // str.isalnum()
// Returns the digit's value, 0 to 9. REQUIRES: IsDecimalDigit(code_point).
int DecimalDigitOf(char32_t code_point);
bool IsPrintable(char32_t code_point);  // not escaped by repr()

// Calls visit(code point) for every character until it returns false. Returns whether it never did.
template <typename Visit>
bool AllCharacters(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix next = ReadUtf8(text.substr(at));
    if (!visit(next.code_point)) return false;
    at += next.size;
  }
  return true;
}

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_TEXT_TOOLS_H_
