#ifndef TANDEM_CONSTRAINT_STRING_GRAMMAR_H_
#define TANDEM_CONSTRAINT_STRING_GRAMMAR_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "constraint/grammar_text.h"
#include "constraint/schema_output.h"
#include "constraint/string_lengths.h"
#include "tandem/json_value.h"

namespace tandem {

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

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_STRING_GRAMMAR_H_
