// What Python's strings do, on UTF-8.
#ifndef TANDEM_CHAT_JINJA_TEXT_TOOLS_H_
#define TANDEM_CHAT_JINJA_TEXT_TOOLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/marked_text.h"

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

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_TEXT_TOOLS_H_
