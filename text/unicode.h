// Character classes of Unicode; base/utf8.h reads and writes the characters.
#ifndef TANDEM_TEXT_UNICODE_H_
#define TANDEM_TEXT_UNICODE_H_

#include <cstddef>
#include <string_view>

namespace tandem {

// Returns the start of the character that ends at `end`. REQUIRES: text is UTF-8; end > 0.
size_t PreviousCharacter(std::string_view text, size_t end);

// The property White_Space of the Unicode character database.
bool IsWhiteSpace(char32_t code_point);
// \w of Unicode Technical Standard 18, Annex C: Alphabetic, marks, decimal digits, connectors and
// the joiners.
bool IsWordCharacter(char32_t code_point);
// General category P, or a punctuation character or symbol of ASCII.
bool IsPunctuation(char32_t code_point);

}  // namespace tandem

#endif  // TANDEM_TEXT_UNICODE_H_
