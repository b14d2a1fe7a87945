#include "text/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace tandem {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character_of{};
  std::array<int, 0x100 + 68> byte_of{};  // -1 for characters that stand for no byte

  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      character_of[byte] = printable ? static_cast<char32_t>(byte) : next++;
      byte_of[character_of[byte]] = byte;
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

std::string ToByteAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    AppendUtf8(GetAlphabet().character_of[static_cast<unsigned char>(byte)], &text);
  }
  return text;
}

std::string FromByteAlphabet(std::string_view token) {
  const auto& byte_of = GetAlphabet().byte_of;
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Utf8Prefix prefix = ReadUtf8(token.substr(at));
    if (prefix.code_point >= byte_of.size() || byte_of[prefix.code_point] < 0) {
      return std::string(token);
    }
    bytes.push_back(static_cast<char>(byte_of[prefix.code_point]));
    at += prefix.size;
  }
  return bytes;
}

}  // namespace tandem
