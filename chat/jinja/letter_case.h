// Classes of characters and the cases of letters, as Python's str has them.
#ifndef TANDEM_CHAT_JINJA_LETTER_CASE_H_
#define TANDEM_CHAT_JINJA_LETTER_CASE_H_

#include "chat/jinja/marked_text.h"

namespace tandem::jinja {

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

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_LETTER_CASE_H_
