#ifndef TANDEM_TEXT_BYTE_ALPHABET_H_
#define TANDEM_TEXT_BYTE_ALPHABET_H_

#include <string>
#include <string_view>

namespace tandem {

// Byte-level vocabularies write bytes as characters that can be printed: GPT-2's alphabet.
// Printable bytes of Latin-1 are themselves, the other 68 are U+0100 and on, in order.
std::string ToByteAlphabet(std::string_view bytes);
// The bytes of a token; a token with a character outside the alphabet stands for its own UTF-8.
std::string FromByteAlphabet(std::string_view token);

}  // namespace tandem

#endif  // TANDEM_TEXT_BYTE_ALPHABET_H_
