// UTF-8 according to the Unicode standard, chapter 3.9.
#ifndef TANDEM_BASE_UTF8_H_
#define TANDEM_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";  // U+FFFD

// The first character, or invalid part, of a text.
struct Utf8Prefix {
  enum class Kind {
    kCharacter,   // a character of `size` bytes
    kInvalid,     // a maximal invalid part of `size` bytes: one U+FFFD
    kIncomplete,  // the whole text, which may become a character with more bytes
  };
  Kind kind = Kind::kCharacter;
  int size = 0;
  char32_t code_point = 0;  // of kCharacter
};
// Reads the beginning of `text`. REQUIRES: text is not empty.
Utf8Prefix ReadUtf8(std::string_view text);

// Returns the offset of the first byte that is not part of a character, or npos.
size_t FindInvalidUtf8(std::string_view text);
bool IsAscii(std::string_view text);
void AppendUtf8(char32_t code_point, std::string* text);
// Returns the text with control characters (C0, DEL and C1) and invalid bytes as \n, \r, \t or
// \xHH, so that it is one line and does not control a terminal. Other text stays, backslashes too.
std::string EscapeControls(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_BASE_UTF8_H_
