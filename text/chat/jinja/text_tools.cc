#include "text/chat/jinja/text_tools.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

size_t FirstCharacter(std::string_view text) { return ReadUtf8(text).size; }

bool IsStripped(std::string_view character, const std::string* chars) {
  if (chars == nullptr) return IsSpace(ReadUtf8(character).code_point);
  return chars->find(character) != std::string::npos;
}

// Returns the first offset from `at` on at which there is white space, or another character if
// `is_space` is false; the text's size if there is none.
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
    const size_t last = PreviousCharacter(text, end);
    if (!IsSpace(ReadUtf8(text.substr(last)).code_point)) break;
    end = last;
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
    const size_t last = PreviousCharacter(whole, end);
    if (!IsStripped(whole.substr(last, end - last), chars)) break;
    end = last;
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
        const size_t last = PreviousCharacter(whole, begin);
        if (IsSpace(ReadUtf8(whole.substr(last)).code_point)) break;
        begin = last;
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

namespace {

// Characters [first, last].
struct Range {
  char32_t first;
  char32_t last;
};

// Unicode's Other_Uppercase and Other_Lowercase: cased characters that are not in categories Lu and
// Ll.
constexpr Range kOtherUpperCase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr Range kOtherLowerCase[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
// Numeric_Type=Digit.
constexpr Range kDigits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
// Ideographs with a numeric value.
constexpr std::u32string_view kNumericIdeographs =
    U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4E96\u4EBF\u4EC0\u4EDF"
    U"\u4EE8\u4F0D\u4F70\u5104\u5146\u5169\u516B\u516D\u5341\u5343\u5344\u5345\u534C\u53C1\u53C2"
    U"\u53C3\u53C4\u56DB\u58F1\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10\u62FE\u634C\u67D2"
    U"\u6F06\u7396\u767E\u8086\u842C\u8CAE\u8CB3\u8D30\u9621\u9646\u964C\u9678\u96F6\uF96B\uF973"
    U"\uF978\uF9B2\uF9D1\uF9D3\uF9FD\U00020001\U00020064\U000200E2\U00020121\U0002092A\U00020983"
    U"\U0002098C\U0002099C\U00020AEA\U00020AFD\U00020B19\U00022390\U00022998\U00023B1B\U0002626D"
    U"\U0002F890";
// Punctuation that is Case_Ignorable.
constexpr std::u32string_view kIgnorable =
    U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";

bool IsIn(absl::Span<const Range> ranges, char32_t c) {
  const auto next =
      std::lower_bound(ranges.begin(), ranges.end(), c,
                       [](const Range& range, char32_t at) { return range.last < at; });
  return next != ranges.end() && next->first <= c;
}

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
// Simple case mappings: one character to one.
char32_t ToUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t ToTitle(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

std::u32string Folded(char32_t c) {
  std::array<utf8proc_int32_t, 4> folded;
  int boundary = 0;
  const utf8proc_ssize_t size = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), folded.data(), folded.size(), UTF8PROC_CASEFOLD, &boundary);
  return {folded.begin(), folded.begin() + size};
}

// A character that folds to several characters also has several in upper case, unless it is a
// capital letter. This was compared with Python for all of Unicode 14.
std::u32string Upper(char32_t c) {
  std::u32string upper = Folded(c);
  if (upper.size() < 2 || CategoryOf(c) == UTF8PROC_CATEGORY_LU) return {ToUpper(c)};
  for (char32_t& each : upper) each = ToUpper(each);
  return upper;
}

bool IsCased(char32_t c) { return IsUpperCase(c) || IsLowerCase(c) || IsTitleCase(c); }

std::u32string Title(char32_t c) {
  constexpr char32_t kCapitalSharpS = 0x1E9E;  // utf8proc's title case of the sharp s
  constexpr char32_t kIota = 0x3B9;
  constexpr char32_t kIotaBelow = 0x345;
  const char32_t title = ToTitle(c);
  const bool is_own = CategoryOf(c) == UTF8PROC_CATEGORY_LU || IsTitleCase(c) ||
                      (title != c && title != kCapitalSharpS);
  std::u32string folded = Folded(c);
  if (is_own || folded.size() < 2) return {title};
  const auto first = std::find_if(folded.begin(), folded.end(), IsCased);
  *first = ToTitle(*first);
  if (folded.back() == kIota) folded.back() = kIotaBelow;
  return folded;
}

// Unicode's Case_Ignorable.
bool IsIgnorable(char32_t c) {
  constexpr std::array kCategories = {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME,
                                      UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_LM,
                                      UTF8PROC_CATEGORY_SK};
  return absl::c_linear_search(kCategories, CategoryOf(c)) || kIgnorable.find(c) != kIgnorable.npos;
}

// Whether the sigma of `size` bytes at offset `at` ends a word.
bool IsFinalSigma(std::string_view text, size_t at, size_t size) {
  const auto ends_in_cased = [&text](size_t end) {
    while (end > 0) {
      const size_t begin = PreviousCharacter(text, end);
      const char32_t c = ReadUtf8(text.substr(begin)).code_point;
      if (!IsIgnorable(c)) return IsCased(c);
      end = begin;
    }
    return false;
  };
  if (!ends_in_cased(at)) return false;
  for (size_t next = at + size; next < text.size();) {
    const Utf8Prefix character = ReadUtf8(text.substr(next));
    if (!IsIgnorable(character.code_point)) return !IsCased(character.code_point);
    next += character.size;
  }
  return true;
}

std::u32string Lower(std::string_view text, size_t at, const Utf8Prefix& character) {
  constexpr char32_t kCapitalDottedI = 0x130;
  constexpr char32_t kCapitalSigma = 0x3A3;
  const char32_t c = character.code_point;
  if (c == kCapitalDottedI) return U"i\u0307";
  if (c == kCapitalSigma && IsFinalSigma(text, at, character.size)) return U"\u03C2";
  return {ToLower(c)};
}

std::u32string Mapped(std::string_view text, size_t at, const Utf8Prefix& character,
                      LetterCase letter_case, bool follows_cased) {
  const char32_t c = character.code_point;
  switch (letter_case) {
    case LetterCase::kUpper:
      return Upper(c);
    case LetterCase::kLower:
      break;
    case LetterCase::kCapitalized:
      if (at == 0) return Title(c);
      break;
    case LetterCase::kTitle:
      if (!follows_cased) return Title(c);
      break;
    case LetterCase::kSwapped:
      if (IsUpperCase(c)) break;
      return IsLowerCase(c) ? Upper(c) : std::u32string{c};
    case LetterCase::kFolded:
      return Folded(c);
  }
  return Lower(text, at, character);
}

}  // namespace

MarkedText WithCase(const MarkedText& text, LetterCase letter_case) {
  MarkedText out;
  size_t at = 0;
  bool follows_cased = false;
  const std::string_view whole = text.text();
  for (const MarkedText::Run& run : text.runs()) {
    std::string mapped;
    while (at < run.end) {
      const Utf8Prefix next = ReadUtf8(whole.substr(at));
      for (const char32_t c : Mapped(whole, at, next, letter_case, follows_cased)) {
        AppendUtf8(c, &mapped);
      }
      follows_cased = IsCased(next.code_point);
      at += next.size;
    }
    out.Append(mapped, run.special);
  }
  return out;
}

bool IsLetterOf(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsUpperCase(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUpperCase, c);
}
bool IsLowerCase(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLowerCase, c);
}
bool IsTitleCase(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }
bool IsDecimalDigit(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimalDigit(c) || IsIn(kDigits, c); }
bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         kNumericIdeographs.find(c) != std::u32string_view::npos;
}
int DecimalDigitOf(char32_t c) {
  TANDEM_CHECK(IsDecimalDigit(c));
  char32_t zero = c;
  // Each script has ten digits in a row, and rows may be adjacent.
  while (IsDecimalDigit(zero - 1)) --zero;
  return static_cast<int>(c - zero) % 10;
}
bool IsLetterOrNumber(char32_t c) { return IsLetterOf(c) || IsNumeric(c); }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  const utf8proc_category_t category = CategoryOf(c);
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

}  // namespace tandem::jinja
