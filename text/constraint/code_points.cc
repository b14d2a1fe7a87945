#include "text/constraint/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"

namespace tandem {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

using CategorySets = std::array<CodePoints, 30>;  // indexed by utf8proc_category_t

const CategorySets& AllCategories() {
  static const CategorySets& categories = *new CategorySets([] {
    std::array<std::vector<CodePoints::Range>, 30> ranges;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      const auto category =
          static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
      std::vector<CodePoints::Range>& of = ranges[category];
      if (!of.empty() && of.back().second + 1 == c) {
        of.back().second = c;
      } else {
        of.push_back({c, c});
      }
    }
    CategorySets all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = CodePoints::Of(std::move(ranges[i]));
    return all;
  }());
  return categories;
}

const CodePoints& UnassignedCodePoints() { return AllCategories()[UTF8PROC_CATEGORY_CN]; }

// Returns the categories whose short names begin with `prefix`, without unassigned code points.
CodePoints CategoriesOf(absl::string_view prefix) {
  static constexpr const char* kShort[] = {
      "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
      "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  std::vector<CodePoints::Range> ranges;
  for (size_t i = 1; i < AllCategories().size(); ++i) {
    if (absl::string_view(kShort[i]).substr(0, prefix.size()) != prefix) continue;
    const CodePoints& category = AllCategories()[i];
    ranges.insert(ranges.end(), category.ranges.begin(), category.ranges.end());
  }
  return CodePoints::Of(std::move(ranges));
}

absl::string_view ShortCategoryName(absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kLong[] = {
      {"Letter", "L"},
      {"Uppercase_Letter", "Lu"},
      {"Lowercase_Letter", "Ll"},
      {"Titlecase_Letter", "Lt"},
      {"Modifier_Letter", "Lm"},
      {"Other_Letter", "Lo"},
      {"Mark", "M"},
      {"Combining_Mark", "M"},
      {"Nonspacing_Mark", "Mn"},
      {"Spacing_Mark", "Mc"},
      {"Enclosing_Mark", "Me"},
      {"Number", "N"},
      {"Decimal_Number", "Nd"},
      {"digit", "Nd"},
      {"Letter_Number", "Nl"},
      {"Other_Number", "No"},
      {"Punctuation", "P"},
      {"punct", "P"},
      {"Connector_Punctuation", "Pc"},
      {"Dash_Punctuation", "Pd"},
      {"Open_Punctuation", "Ps"},
      {"Close_Punctuation", "Pe"},
      {"Initial_Punctuation", "Pi"},
      {"Final_Punctuation", "Pf"},
      {"Other_Punctuation", "Po"},
      {"Symbol", "S"},
      {"Math_Symbol", "Sm"},
      {"Currency_Symbol", "Sc"},
      {"Modifier_Symbol", "Sk"},
      {"Other_Symbol", "So"},
      {"Separator", "Z"},
      {"Space_Separator", "Zs"},
      {"Line_Separator", "Zl"},
      {"Paragraph_Separator", "Zp"},
      {"Other", "C"},
      {"Control", "Cc"},
      {"cntrl", "Cc"},
      {"Format", "Cf"},
      {"Private_Use", "Co"},
  };
  for (const auto& [longer, shorter] : kLong) {
    if (name == longer || name == shorter) return shorter;
  }
  return "";
}

struct CasedCharacter {
  char32_t code_point;
  char32_t lower;
  char32_t upper;
};
const std::vector<CasedCharacter>& AllCased() {
  static const std::vector<CasedCharacter>& all = *new std::vector<CasedCharacter>([] {
    std::vector<CasedCharacter> found;
    for (char32_t c = 0; c <= kLastCodePoint; ++c) {
      const auto point = static_cast<utf8proc_int32_t>(c);
      const auto lower = static_cast<char32_t>(utf8proc_tolower(point));
      const auto upper = static_cast<char32_t>(utf8proc_toupper(point));
      if (lower != c || upper != c) found.push_back({c, lower, upper});
    }
    return found;
  }());
  return all;
}

// Sorts the ranges and merges those that overlap or touch.
std::vector<CodePoints::Range> MergedRanges(std::vector<CodePoints::Range> ranges) {
  absl::c_sort(ranges);
  std::vector<CodePoints::Range> merged;
  for (const auto& [first, last] : ranges) {
    if (merged.empty() || first > merged.back().second + 1) {
      merged.push_back({first, last});
    } else {
      merged.back().second = std::max(merged.back().second, last);
    }
  }
  return merged;
}

}  // namespace

CodePoints CodePoints::Any() {
  return {.ranges = {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLastCodePoint}}};
}

CodePoints CodePoints::Of(std::vector<Range> ranges) {
  return Intersection({.ranges = MergedRanges(std::move(ranges))}, Any());
}

int64_t CodePoints::size() const {
  int64_t size = 0;
  for (const auto& [first, last] : ranges) size += int64_t{last} - first + 1;
  return size;
}

bool CodePoints::Contains(char32_t code_point) const {
  const auto after = absl::c_upper_bound(ranges, Range{code_point, kLastCodePoint});
  return after != ranges.begin() && std::prev(after)->second >= code_point;
}

CodePoints Union(const CodePoints& a, const CodePoints& b) {
  std::vector<CodePoints::Range> both = a.ranges;
  both.insert(both.end(), b.ranges.begin(), b.ranges.end());
  return {.ranges = MergedRanges(std::move(both))};
}

CodePoints Intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints common;
  for (size_t i = 0, j = 0; i < a.ranges.size() && j < b.ranges.size();) {
    const char32_t first = std::max(a.ranges[i].first, b.ranges[j].first);
    const char32_t last = std::min(a.ranges[i].second, b.ranges[j].second);
    if (first <= last) common.ranges.push_back({first, last});
    if (a.ranges[i].second < b.ranges[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

CodePoints Complement(const CodePoints& a) {
  CodePoints gaps;
  char32_t next = 0;
  for (const auto& [first, last] : a.ranges) {
    if (first > next) gaps.ranges.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLastCodePoint) gaps.ranges.push_back({next, kLastCodePoint});
  return Intersection(gaps, CodePoints::Any());
}

NamedClass Negated(const NamedClass& named) {
  return {.sure = Complement(named.possible), .possible = Complement(named.sure)};
}

std::optional<NamedClass> ClassOfEscape(char letter) {
  const CodePoints& unassigned = UnassignedCodePoints();
  switch (letter) {
    case 'd':
      return NamedClass{.sure = CodePoints::Of({{'0', '9'}}),
                        .possible = Union(CategoriesOf("Nd"), unassigned)};
    case 'w': {
      // Python's isalnum() is Unicode's letters and numbers.
      const CodePoints ascii = CodePoints::Of({{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}});
      return NamedClass{
          .sure = ascii,
          .possible = Union(Union(CategoriesOf("L"), CategoriesOf("N")), Union(ascii, unassigned))};
    }
    case 's': {
      const CodePoints both = CodePoints::Of({{0x9, 0xD},
                                              {0x20, 0x20},
                                              {0xA0, 0xA0},
                                              {0x1680, 0x1680},
                                              {0x2000, 0x200A},
                                              {0x2028, 0x2029},
                                              {0x202F, 0x202F},
                                              {0x205F, 0x205F},
                                              {0x3000, 0x3000}});
      // ECMA-262 adds the byte order mark (and U+180E in old editions), and Python adds ASCII's
      // separators and NEL.
      return NamedClass{
          .sure = both,
          .possible = Union(
              both,
              CodePoints::Of({{0x1C, 0x1F}, {0x85, 0x85}, {0x180E, 0x180E}, {0xFEFF, 0xFEFF}}))};
    }
    case 'D':
    case 'W':
    case 'S':
      return Negated(*ClassOfEscape(absl::ascii_tolower(static_cast<unsigned char>(letter))));
    default:
      return std::nullopt;
  }
}

std::optional<NamedClass> ClassOfCategory(absl::string_view name) {
  const absl::string_view prefix = ShortCategoryName(name);
  if (prefix.empty()) return std::nullopt;
  const CodePoints sure = CategoriesOf(prefix);
  return NamedClass{.sure = sure, .possible = Union(sure, UnassignedCodePoints())};
}

CodePoints WithAsciiCases(const CodePoints& a) {
  CodePoints folded = a;
  for (const auto& [first, last] : Intersection(a, CodePoints::Of({{'a', 'z'}})).ranges) {
    folded.ranges.push_back({first - 'a' + 'A', last - 'a' + 'A'});
  }
  for (const auto& [first, last] : Intersection(a, CodePoints::Of({{'A', 'Z'}})).ranges) {
    folded.ranges.push_back({first - 'A' + 'a', last - 'A' + 'a'});
  }
  return CodePoints::Of(std::move(folded.ranges));
}

CodePoints WithAllCases(const CodePoints& a) {
  CodePoints folded = a;
  while (true) {
    std::vector<CodePoints::Range> more;
    for (const auto& [c, lower, upper] : AllCased()) {
      if (!folded.Contains(c) && !folded.Contains(lower) && !folded.Contains(upper)) continue;
      for (const char32_t one : {c, lower, upper}) {
        if (!folded.Contains(one)) more.push_back({one, one});
      }
    }
    if (more.empty()) return folded;
    folded = Union(folded, CodePoints::Of(std::move(more)));
  }
}

}  // namespace tandem
