// Sets of characters, and the named character classes of regular expressions.
#ifndef TANDEM_TEXT_CONSTRAINT_CODE_POINTS_H_
#define TANDEM_TEXT_CONSTRAINT_CODE_POINTS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// A set of code points: disjoint inclusive ranges, sorted, none adjacent, without surrogates.
struct CodePoints {
  using Range = std::pair<char32_t, char32_t>;

  // Returns the union of ranges, which may come in any order, without surrogates.
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

// A named class of a regular expression. Readers, which use different dialects and versions of
// Unicode, disagree on its members.
struct NamedClass {
  CodePoints sure;      // characters that are members for every reader
  CodePoints possible;  // characters that are members for some reader
};
// Returns the complement of a class.
NamedClass Negated(const NamedClass& named);
// Returns \d \D \w \W \s \S by the letter, as in ECMA-262 section 22.2.2.9 and Python's `re`.
// Returns nullopt for other letters.
std::optional<NamedClass> ClassOfEscape(char letter);
// Returns a general category of Unicode by its short or long name, such as "Lu" or
// "Uppercase_Letter". Returns nullopt for other names.
std::optional<NamedClass> ClassOfCategory(absl::string_view name);

// Adds the other case of every ASCII letter in the set.
CodePoints WithAsciiCases(const CodePoints& a);
// Adds every character that is another case of one in the set, until nothing changes.
CodePoints WithAllCases(const CodePoints& a);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_CODE_POINTS_H_
