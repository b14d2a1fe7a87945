// Sets of characters, and those that regular expressions have names for.
#ifndef TANDEM_CONSTRAINT_CODE_POINTS_H_
#define TANDEM_CONSTRAINT_CODE_POINTS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// A set of code points: disjoint inclusive ranges, sorted, none adjacent, without surrogates.
struct CodePoints {
  using Range = std::pair<char32_t, char32_t>;

  // The union of ranges in any order, without surrogates.
  static CodePoints Of(std::vector<Range> ranges);
  static CodePoints Any();
  bool is_empty() const { return ranges.empty(); }
  int64_t size() const;
  bool Contains(char32_t code_point) const;

  std::vector<Range> ranges{};
};
CodePoints Union(const CodePoints& a, const CodePoints& b);
CodePoints Intersection(const CodePoints& a, const CodePoints& b);
CodePoints Complement(const CodePoints& a);

// A class as an expression names it. Dialects and versions of Unicode differ in the members.
struct NamedClass {
  CodePoints sure;      // what every reader finds in it
  CodePoints possible;  // what some reader finds in it
};
// The characters that every reader finds in neither, and those that some reader does not.
NamedClass Negated(const NamedClass& named);
// \d \D \w \W \s \S, by the letter. ECMA-262 section 22.2.2.9 and Python's `re`.
std::optional<NamedClass> ClassOfEscape(char letter);
// A general category of Unicode by its short or long name, such as "Lu" or "Uppercase_Letter".
std::optional<NamedClass> ClassOfCategory(absl::string_view name);

// With the other case of every ASCII letter.
CodePoints WithAsciiCases(const CodePoints& a);
// With all characters that are the other case of one in it, and of those.
CodePoints WithAllCases(const CodePoints& a);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_CODE_POINTS_H_
