// Grammars of JSON strings: their lengths, patterns and formats, and the names of properties.
#ifndef TANDEM_TEXT_CONSTRAINT_STRING_GRAMMAR_H_
#define TANDEM_TEXT_CONSTRAINT_STRING_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"
#include "text/constraint/grammar_text.h"
#include "text/constraint/string_lengths.h"

namespace tandem {

// Names that another name must differ from, by their characters as written in JSON strings.
struct NameTrie {
  std::map<std::string, NameTrie> next;
  bool is_name = false;    // whether a name ends here
  bool is_prefix = false;  // whether other names must not begin with the text up to here

  bool has_any() const { return is_name || !next.empty(); }
  void Add(const std::string& name, bool as_prefix);
  // Returns the node of the name, or of a prefix node that it begins with; null if there is
  // neither.
  const NameTrie* Find(const std::string& name) const;
};

// Returns an expression for the content of strings that are not among `names`. Each string has only
// one text, so that different texts are different strings.
//   max: largest number of characters, which the caller enforces; -1: unlimited
std::string NameExcept(const NameTrie& names, int64_t max);

GrammarExpr AnyJsonString();
// Returns the content of a string with the quote after it. If possible, they become one regular
// expression, which the engine follows faster.
GrammarExpr BeforeQuote(GrammarExpr content);

// Writes the strings of a schema. Thread-compatible.
class StringGrammar {
 public:
  explicit StringGrammar(SchemaOutput* output) : output_(output) {}

  // Returns the strings of flat schemas (json_schema.h), in quotes. Removes those of `literals`,
  // which are possible at the same position, that are among the strings. `is_shared`: other
  // structures with strings of their own are followed at the same time.
  absl::StatusOr<GrammarExpr> Strings(const std::vector<JsonValue>& flats, const std::string& path,
                                      bool is_shared, JsonValue* literals);

  // Returns a rule for an expression whose lengths are counted by means of a mark. Equal arguments
  // give the same rule.
  GrammarExpr Marked(GrammarExpr expr, const LengthRanges& ranges);

  // Numbers the marks, and appends their lengths in this order. Call once, at the end.
  void NumberMarks(std::vector<LengthRanges>* lengths);

 private:
  struct Content;
  absl::StatusOr<std::optional<Content>> ContentOf(const JsonValue& flat, const std::string& path);
  GrammarExpr Closed(const Content& content, bool is_shared, bool is_alone);

  SchemaOutput* output_;
  std::map<std::pair<std::string, LengthRanges>, int> marked_;  // -> rule
  std::vector<LengthRanges> marks_;  // of the marks 1, 2, ... before NumberMarks
};

// Returns the expression (ParseRegex, RegexMode::kWhole) of a `format` of JSON Schema, section 7.3
// of its validation vocabulary; nullptr for unknown formats. Every match is valid for strict
// readers. Some valid texts do not match:
//   date, time, date-time  RFC 3339: existing days from the year 1 on, `T` and `Z` in capitals, no
//                          leap seconds, at most 6 digits of fraction
//   duration               RFC 3339 appendix A, with numbers of at most 6 digits
//   hostname               RFC 1123 section 2.1: labels of at most 63 characters, without adjacent
//                          hyphens as in xn--; the last label begins with a letter
//   email                  RFC 5321: a dot-string of at most 64 characters, and a host name that
//                          has a dot and ends in letters
//   ipv4, ipv6             RFC 2673 section 3.2 and RFC 4291 section 2.2, without a zone
//   uri, uri-reference     RFC 3986, with a host name, an IP address or no host
//   iri, iri-reference, idn-hostname, idn-email
//                          the same as above, in ASCII
//   uuid                   RFC 4122
//   json-pointer           RFC 6901
//   relative-json-pointer  draft-bhutton 00, with an index of at most 9 digits, only the last of
//                          which may be 0, because Python's jsonschema rejects others
const char* PatternOfFormat(absl::string_view format);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_STRING_GRAMMAR_H_
