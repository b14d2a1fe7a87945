#include "chat/jinja/text_tools.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

// The bytes of the last character.
size_t LastCharacter(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && (text[text.size() - size] & 0xC0) == 0x80) ++size;
  return size;
}

size_t FirstCharacter(std::string_view text) { return ReadUtf8(text).size; }

bool IsStripped(std::string_view character, const std::string* chars) {
  if (chars == nullptr) return IsSpace(ReadUtf8(character).code_point);
  return chars->find(character) != std::string::npos;
}

// The first byte of white space from `at` on, or of what is none.
size_t FindSpace(std::string_view text, size_t at, bool is_space) {
  while (at < text.size()) {
    const Utf8Prefix next = ReadUtf8(text.substr(at));
    if (IsSpace(next.code_point) == is_space) break;
    at += next.size;
  }
  return at;
}

}  // namespace

bool IsSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }

size_t LeadingSpace(std::string_view text) { return FindSpace(text, 0, /*is_space=*/false); }

size_t TrailingSpace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t size = LastCharacter(text.substr(0, end));
    if (!IsSpace(ReadUtf8(text.substr(end - size, size)).code_point)) break;
    end -= size;
  }
  return text.size() - end;
}

size_t NumCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

MarkedText Stripped(const MarkedText& text, const std::string* chars, Sides sides) {
  const std::string_view whole = text.text();
  size_t begin = 0;
  size_t end = whole.size();
  while (sides.left && begin < end) {
    const size_t size = FirstCharacter(whole.substr(begin, end - begin));
    if (!IsStripped(whole.substr(begin, size), chars)) break;
    begin += size;
  }
  while (sides.right && begin < end) {
    const size_t size = LastCharacter(whole.substr(begin, end - begin));
    if (!IsStripped(whole.substr(end - size, size), chars)) break;
    end -= size;
  }
  return text.Slice(begin, end);
}

std::vector<MarkedText> Split(const MarkedText& text, const std::string* separator, int64_t most) {
  const std::string_view whole = text.text();
  std::vector<MarkedText> parts;
  size_t at = separator == nullptr ? FindSpace(whole, 0, /*is_space=*/false) : 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    if (separator != nullptr) {
      const size_t end = whole.find(*separator, at);
      if (end == kNone) break;
      parts.push_back(text.Slice(at, end));
      at = end + separator->size();
    } else {
      if (at == whole.size()) break;
      const size_t end = FindSpace(whole, at, /*is_space=*/true);
      parts.push_back(text.Slice(at, end));
      at = FindSpace(whole, end, /*is_space=*/false);
    }
  }
  if (separator != nullptr || at < whole.size()) parts.push_back(text.Slice(at, whole.size()));
  return parts;
}

std::vector<MarkedText> SplitFromRight(const MarkedText& text, const std::string* separator,
                                       int64_t most) {
  const std::string_view whole = text.text();
  std::vector<MarkedText> parts;
  size_t end = whole.size();
  if (separator == nullptr) end -= TrailingSpace(whole);
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    if (separator != nullptr) {
      const size_t at = whole.substr(0, end).rfind(*separator);
      if (at == kNone) break;
      parts.push_back(text.Slice(at + separator->size(), end));
      end = at;
    } else {
      if (end == 0) break;
      size_t begin = end;
      while (begin > 0) {
        const size_t size = LastCharacter(whole.substr(0, begin));
        if (IsSpace(ReadUtf8(whole.substr(begin - size, size)).code_point)) break;
        begin -= size;
      }
      parts.push_back(text.Slice(begin, end));
      end = begin - TrailingSpace(whole.substr(0, begin));
    }
  }
  if (separator != nullptr || end > 0) parts.push_back(text.Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedText> SplitLines(const MarkedText& text, bool keeps_ends, size_t most) {
  const std::string_view whole = text.text();
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < whole.size() && lines.size() < most;) {
    const Utf8Prefix next = ReadUtf8(whole.substr(at));
    size_t end = at + next.size;
    if (ends_line(next.code_point)) {
      if (whole.substr(at, 2) == "\r\n") ++end;
      lines.push_back(text.Slice(begin, keeps_ends ? end : at));
      begin = end;
    }
    at = end;
  }
  if (begin < whole.size()) lines.push_back(text.Slice(begin, whole.size()));
  return lines;
}

size_t NumPlaces(std::string_view text, std::string_view part) {
  if (part.empty()) return NumCharacters(text) + 1;
  size_t count = 0;
  for (size_t at = text.find(part); at != kNone; at = text.find(part, at + part.size())) ++count;
  return count;
}

MarkedText Replaced(const MarkedText& text, const std::string& from, const MarkedText& to,
                    int64_t most) {
  const std::string_view whole = text.text();
  MarkedText out;
  size_t at = 0;
  int64_t count = 0;
  if (from.empty()) {
    for (; (most < 0 || count < most) && at <= whole.size(); ++count) {
      out.Append(to);
      if (at == whole.size()) return out;
      const size_t size = FirstCharacter(whole.substr(at));
      out.Append(text, at, at + size);
      at += size;
    }
  }
  for (; !from.empty() && (most < 0 || count < most); ++count) {
    const size_t found = whole.find(from, at);
    if (found == kNone) break;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
  }
  out.Append(text, at, whole.size());
  return out;
}

}  // namespace tandem::jinja
