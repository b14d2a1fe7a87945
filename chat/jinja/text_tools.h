// What Python's strings do, on UTF-8: parts, classes of characters and the cases of letters.
#ifndef TANDEM_CHAT_JINJA_TEXT_TOOLS_H_
#define TANDEM_CHAT_JINJA_TEXT_TOOLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "chat/jinja/value.h"

namespace tandem::jinja {

// What str.isspace() takes: White_Space of Unicode, and the four separators of ASCII.
bool IsSpace(char32_t code_point);

// The bytes of white space that a text begins and ends with.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

size_t NumCharacters(std::string_view text);
// The byte at which each character begins, and the end.
std::vector<size_t> CharacterOffsets(std::string_view text);

// Without white space, or the characters of `chars` unless it is null, on the sides asked for.
struct Sides {
  bool left = true;
  bool right = true;
};
MarkedText Stripped(const MarkedText& text, const std::string* chars, Sides sides);

// str.split and rsplit: by `separator`, or by white space if it is null, at most so often (-1: no
// limit). REQUIRES: *separator is not empty.
std::vector<MarkedText> Split(const MarkedText& text, const std::string* separator, int64_t most);
std::vector<MarkedText> SplitFromRight(const MarkedText& text, const std::string* separator,
                                       int64_t most);
// As str.splitlines, but the rest after the first `most` lines is one line.
std::vector<MarkedText> SplitLines(const MarkedText& text, bool keeps_ends, size_t most);
// How often str.replace finds `part`.
size_t NumPlaces(std::string_view text, std::string_view part);
// str.replace; an empty `from` stands between all characters.
MarkedText Replaced(const MarkedText& text, const std::string& from, const MarkedText& to,
                    int64_t most);

// str.upper(), lower(), capitalize(), title(), swapcase() and casefold(): Unicode's full mappings,
// in which a letter may become several. Each keeps the mark of its letter.
enum class LetterCase { kUpper, kLower, kCapitalized, kTitle, kSwapped, kFolded };
MarkedText WithCase(const MarkedText& text, LetterCase letter_case);

inline bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetterOf(char32_t code_point);  // of any script
bool IsUpperCase(char32_t code_point);
bool IsLowerCase(char32_t code_point);
bool IsTitleCase(char32_t code_point);
// Each includes the one before: decimal digits, superscripts and the like, any number.
bool IsDecimalDigit(char32_t code_point);
bool IsDigit(char32_t code_point);
bool IsNumeric(char32_t code_point);
bool IsLetterOrNumber(char32_t code_point);  // str.isalnum()
// 0 to 9. REQUIRES: IsDecimalDigit(code_point).
int DecimalDigitOf(char32_t code_point);
bool IsPrintable(char32_t code_point);  // not escaped by repr()

// Calls visit(code point) for every character until that says false. Whether none did.
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

#endif  // TANDEM_CHAT_JINJA_TEXT_TOOLS_H_
