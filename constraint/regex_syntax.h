// Regular expressions of schemas and requests: parsed here, written again for the grammar engine.
//
//   ASSIGN_OR_RETURN(const RegexNode node, ParseRegex("^\\d{3}-[^\"]+$", RegexMode::kJsonSchema));
//   RegexText(node, TextForm::kJson)   what a JSON string that matches has between its quotes
#ifndef TANDEM_CONSTRAINT_REGEX_SYNTAX_H_
#define TANDEM_CONSTRAINT_REGEX_SYNTAX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "constraint/code_points.h"

namespace tandem {

// A regular expression, parsed. Every node has a match.
struct RegexNode {
  enum class Kind { kEmpty, kCodePoints, kSequence, kAlternatives, kRepeat };

  Kind kind = Kind::kEmpty;
  CodePoints code_points{};  // of kCodePoints; not empty
  // kSequence and kAlternatives have more than one, none of the same kind as they are, and kEmpty
  // is only ever the last alternative; kRepeat has one.
  std::vector<RegexNode> children{};
  int min = 0;   // of kRepeat
  int max = -1;  // of kRepeat; -1: without end
};
// They simplify: a sequence of one node is that node, alternatives of single characters are a set.
RegexNode SetNode(CodePoints code_points);
RegexNode SequenceNode(std::vector<RegexNode> children);
RegexNode AlternativesNode(std::vector<RegexNode> children);
RegexNode RepeatNode(RegexNode child, int min, int max);
// The text, character by character. REQUIRES: text is UTF-8.
RegexNode LiteralNode(absl::string_view text);

enum class RegexMode {
  // The whole text matches; anchors at the ends say nothing new.
  kWhole,
  // A part of the text matches. An alternative with neither or both anchors is taken as the whole
  // text; with `^` alone anything may follow, with `$` alone anything may precede.
  kJsonSchema,
  // A part of the text matches, wherever it is.
  kSearch,
};
// Reads the syntax of ECMA-262 with the flag u (section 22.2.1), and of Python's `re` where that
// adds (?P<name> ) and a leading (?i), which folds ASCII letters.
//
// A text that the node matches is one that ECMA-262 and Python's `re` both match, whatever
// they disagree on: \d and \w are ASCII, \D and \W are without Unicode's digits, letters and
// numbers; \s and \S are what both call white space and what neither does; a negated set, in
// [^ ], lacks what either would find in it. Code points that are not yet assigned count as
// members of no category and of no negated one. `.` leaves out \n, \r, U+2028 and U+2029.
//
// INVALID_ARGUMENT with the offset in bytes and the construct that cannot be kept: lookaround,
// back-references, \b and \B, possessive quantifiers, anchors anywhere but at the ends of the whole
// expression or of one of its alternatives, unknown escapes, `\p` of anything but a general
// category, empty classes, counts above 10,000,000, more than 200 groups in each other, and
// malformed ones of all kinds.
absl::StatusOr<RegexNode> ParseRegex(absl::string_view pattern, RegexMode mode);

// Whether the whole text matches. REQUIRES: text is UTF-8.
bool Matches(const RegexNode& node, absl::string_view text);

// The least and the greatest number of code points in a match; -1: without end.
std::pair<int64_t, int64_t> LengthsOf(const RegexNode& node);

// The part of `node` whose matches have from `min` to `max` (-1: without end) code points.
// Written for nodes that lie within already, and for sequences in which just one part has no fixed
// length: a repeat of one set. Alternatives are cut one by one, and those without a match dropped.
// nullopt for other nodes, and where nothing is left.
std::optional<RegexNode> WithLengths(const RegexNode& node, int64_t min, int64_t max);

enum class TextForm {
  kPlain,
  // Between the quotes of a JSON string: `"`, `\` and the control characters are escaped, with
  // the short escape where JSON has one and as \u00XX elsewhere; everything else is itself. An
  // escaped character counts once in repeats.
  kJson,
};
// The expression in the dialect of XGrammar 0.2.8, which is also PCRE2's but for \u{H}, there
// \x{H}. Avoids what XGrammar compiles wrongly:
//   (?:ba*)? takes "aa": the empty case is written {0,1};
//   (?:bc*|a){2,} takes "aaca", as groups with several ends do: an empty group after the content
//   leaves it one end;
//   a range that has characters of different lengths in UTF-8, or the surrogates, takes bytes that
//   are not UTF-8: such sets become one class for each length.
std::string RegexText(const RegexNode& node, TextForm form);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_REGEX_SYNTAX_H_
