// Expressions, in the grammar engine's dialect, of what JSON strings have between their quotes.
#ifndef TANDEM_CONSTRAINT_STRING_GRAMMAR_H_
#define TANDEM_CONSTRAINT_STRING_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "constraint/grammar_text.h"
#include "constraint/string_lengths.h"
#include "tandem/json_value.h"

namespace tandem {

// Names that others must differ from, by their characters as JSON strings have them.
struct NameTrie {
  std::map<std::string, NameTrie> next;
  bool is_name = false;    // ends here
  bool is_prefix = false;  // no name may begin so

  bool has_any() const { return is_name || !next.empty(); }
  void Add(const std::string& name, bool as_prefix);
  // The node of the name, or of the prefix that it begins with; null if there is neither.
  const NameTrie* Find(const std::string& name) const;
};

// The content of strings that are none of `names`, with one way to write each, so that two texts
// that differ are two strings.
//   max: the most characters that they have; -1: without end
std::string NameBesides(const NameTrie& names, int64_t max);

GrammarExpr AnyJsonString();
// The content of a string with the quote after it; in one expression where that can be, which is
// followed faster.
GrammarExpr BeforeQuote(GrammarExpr content);

// Writes the strings of a schema.
class StringGrammar {
 public:
  explicit StringGrammar(SchemaOutput* output) : output_(output) {}

  // The strings of flat schemas (json_schema.h), each in quotes. `literals`, which may be written
  // at the same place, lose those that are among the strings. is_shared: other structures are
  // followed at the same time, with strings of their own.
  absl::StatusOr<GrammarExpr> Strings(const std::vector<JsonValue>& flats, const std::string& path,
                                      bool is_shared, JsonValue* literals);

  // An expression that leaves lengths open, and the lengths. The same twice is the same rule.
  GrammarExpr Marked(GrammarExpr expr, const LengthRanges& ranges);

  // Gives the marks their numbers, and appends their lengths in this order. To be called once.
  void NumberMarks(std::vector<LengthRanges>* lengths);

 private:
  struct Content;
  absl::StatusOr<std::optional<Content>> ContentOf(const JsonValue& flat, const std::string& path);
  GrammarExpr Closed(const Content& content, bool is_shared, bool is_alone);

  SchemaOutput* output_;
  std::map<std::pair<std::string, LengthRanges>, int> marked_;  // rules
  std::vector<LengthRanges> marks_;  // from 1 on, in the order in which they were made
};

// The expression (ParseRegex, RegexMode::kWhole) of a `format` of JSON Schema, section 7.3 of its
// validation vocabulary; nullptr for others. Every match is valid for strict readers; some valid
// texts are left out:
//   date, time, date-time  RFC 3339: real days from the year 1 on, `T` and `Z` in capitals, no
//                          second 60, at most 6 digits of fraction
//   duration               RFC 3339 appendix A, numbers of at most 6 digits
//   hostname               RFC 1123 section 2.1: labels of at most 63 characters, the last of
//                          which begins with a letter; no two hyphens together, as in xn--
//   email                  RFC 5321: a dot-string of at most 64 characters, and a host name with a
//                          dot, which ends in letters
//   ipv4, ipv6             RFC 2673 section 3.2 and RFC 4291 section 2.2, without a zone
//   uri, uri-reference     RFC 3986, with a host name, an address in its own form or no host
//   iri, iri-reference, idn-hostname, idn-email
//                          the same in ASCII
//   uuid                   RFC 4122
//   json-pointer           RFC 6901
//   relative-json-pointer  draft-bhutton 00, an index of at most 9 digits; no zero before other
//                          digits, which Python's jsonschema refuses
const char* PatternOfFormat(absl::string_view format);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_STRING_GRAMMAR_H_
