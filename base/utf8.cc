#include "base/utf8.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/string_view.h"

namespace tandem {

Utf8Prefix ReadUtf8(std::string_view text) {
  TANDEM_DCHECK(!text.empty());
  using Kind = Utf8Prefix::Kind;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Kind::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1, 0};
  const int size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0x7F >> size);
  for (int i = 1; i < size; ++i) {
    if (i == static_cast<int>(text.size())) return {Kind::kIncomplete, i, 0};
    // The range of the second byte excludes overlong forms, surrogates and code points above
    // U+10FFFF.
    const unsigned char low = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  return {Kind::kCharacter, size, code_point};
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix prefix = ReadUtf8(text.substr(at));
    if (prefix.kind != Utf8Prefix::Kind::kCharacter) return at;
    at += prefix.size;
  }
  return std::string_view::npos;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void AppendUtf8(char32_t c, std::string* text) {
  const auto push = [&](char32_t bits) { text->push_back(static_cast<char>(bits)); };
  if (c < 0x80) return push(c);
  if (c < 0x800) {
    push(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12);
    push(0x80 | (c >> 6 & 0x3F));
  } else {
    push(0xF0 | c >> 18);
    push(0x80 | (c >> 12 & 0x3F));
    push(0x80 | (c >> 6 & 0x3F));
  }
  push(0x80 | (c & 0x3F));
}

std::string EscapeControls(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const Utf8Prefix prefix = ReadUtf8(text);
    const std::string_view part = text.substr(0, prefix.size);
    const char32_t c = prefix.code_point;
    if (prefix.kind == Utf8Prefix::Kind::kCharacter && c >= 0x20 && (c < 0x7F || c > 0x9F)) {
      escaped += part;
    } else {
      escaped += absl::CHexEscape(View(part));
    }
    text.remove_prefix(prefix.size);
  }
  return escaped;
}

}  // namespace tandem
