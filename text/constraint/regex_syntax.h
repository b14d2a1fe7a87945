// Regular expressions of schemas and requests, which are parsed and written again for the grammar
// engine.
//
//   ASSIGN_OR_RETURN(const RegexNode node, ParseRegex("^\\d{3}-[^\"]+$", RegexMode::kJsonSchema));
//   RegexText(node, TextForm::kJson)   matches the content of JSON strings that match the pattern
#ifndef TANDEM_TEXT_CONSTRAINT_REGEX_SYNTAX_H_
#define TANDEM_TEXT_CONSTRAINT_REGEX_SYNTAX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/constraint/code_points.h"

namespace tandem {

// A parsed regular expression. Every node matches at least one text.
struct RegexNode {
  enum class Kind { kEmpty, kCodePoints, kSequence, kAlternatives, kRepeat };

  Kind kind = Kind::kEmpty;
  CodePoints code_points{};  // of kCodePoints; not empty
  // kSequence and kAlternatives have more than one child, none of their own kind. kEmpty can only
  // be the last alternative. kRepeat has one child.
  std::vector<RegexNode> children{};
  int min = 0;   // of kRepeat
  int max = -1;  // of kRepeat; -1: unlimited
};
// Make simplified nodes: a sequence of one node is that node, and alternatives of single characters
// become a set.
RegexNode SetNode(CodePoints code_points);
RegexNode SequenceNode(std::vector<RegexNode> children);
RegexNode AlternativesNode(std::vector<RegexNode> children);
RegexNode RepeatNode(RegexNode child, int min, int max);
// Returns a node that matches only `text`. REQUIRES: text is UTF-8.
RegexNode LiteralNode(absl::string_view text);

// How much of a text an expression has to match.
enum class RegexMode {
  // The whole text; anchors at the ends make no difference.
  kWhole,
  // The whole text for an alternative with both anchors or without anchors. After an alternative
  // with only `^`, and before one with only `$`, any text is allowed.
  kJsonSchema,
  // A part of the text, at any place that the anchors allow.
  kSearch,
};
// Parses the syntax of ECMA-262 with the flag u (section 22.2.1), and from Python's `re` (?P<name>
// ) and a leading (?i), which folds ASCII letters.
//
// Where ECMA-262 and Python's `re` disagree, the node matches only the texts that both match. \d
// and \w are ASCII; \D and \W exclude Unicode's digits, letters and numbers. \s has the characters
// that both call white space, and \S those that neither does. A negated set [^ ] excludes the
// characters that either finds in the set. Unassigned code points are in no category and in no
// negated one. `.` excludes \n, \r, U+2028 and U+2029.
//
// INVALID_ARGUMENT with the offset in bytes and the construct that is malformed or not supported:
// lookaround, back-references, \b and \B, possessive quantifiers, anchors anywhere but at the ends
// of the whole expression or of one of its alternatives, unknown escapes, `\p` of anything but a
// general category, empty classes, counts above 10,000,000, and more than 200 nested groups.
absl::StatusOr<RegexNode> ParseRegex(absl::string_view pattern, RegexMode mode);

// Returns whether the whole text matches. REQUIRES: text is UTF-8.
bool Matches(const RegexNode& node, absl::string_view text);

// Returns the smallest and the largest number of code points in a match; -1: unlimited.
std::pair<int64_t, int64_t> LengthsOf(const RegexNode& node);

// Restricts `node` to the matches of `min` to `max` code points (-1: unlimited). Supported are
// nodes whose matches are all within these bounds, and sequences in which only one part has a
// variable length and is a repeat of one set. Alternatives are restricted one by one, and those
// without a match are dropped. Returns nullopt for other nodes, and if no match is left.
std::optional<RegexNode> WithLengths(const RegexNode& node, int64_t min, int64_t max);

// The form of the texts that a written expression matches.
enum class TextForm {
  kPlain,
  // The content of a JSON string: `"`, `\` and control characters are escaped, with the short
  // escape if JSON has one and else as \u00XX. All other characters are unescaped. An escaped
  // character counts once in repeats.
  kJson,
};
// Writes the expression in the dialect of XGrammar 0.2.8, which is also PCRE2's, except that \u{H}
// is \x{H} there. Avoids constructs that XGrammar compiles wrongly:
//   (?:ba*)? accepts "aa": optional groups are written {0,1};
//   (?:bc*|a){2,} accepts "aaca", as do other groups with several ends: an empty group after the
//   content leaves it one end;
//   a range that contains surrogates, or characters of different lengths in UTF-8, accepts bytes
//   that are not UTF-8: such sets become one class for each length.
std::string RegexText(const RegexNode& node, TextForm form);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_REGEX_SYNTAX_H_
