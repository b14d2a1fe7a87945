// Regular expressions (ParseRegex, RegexMode::kWhole) for the JSON numbers between two bounds.
//
//   NumberRange({{.decimal = "-5"}}, {{.decimal = "1e2", .is_exclusive = true}}, true)
//       "-5" to "99"
#ifndef TANDEM_TEXT_CONSTRAINT_NUMBER_GRAMMAR_H_
#define TANDEM_TEXT_CONSTRAINT_NUMBER_GRAMMAR_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"
#include "text/constraint/grammar_text.h"

namespace tandem {

struct NumberBound {
  std::string decimal{};  // a JSON number such as "-1.5" or "1e3"
  bool is_exclusive = false;
};

// Returns an expression for the JSON numbers or integers in the range, without exponent, leading
// zeros and "-0". An absent bound leaves its side open. Numbers on an open side have at most 15
// digits before the point, or one more than the other bound if that is longer. A bound of more than
// 100 digits before the point counts as open, unless it leaves only such numbers. Integers have no
// fraction, nor have numbers of more than 15 digits before the point; others have up to 15 digits
// of it.
//
// Bounds are exact. A reader may round bounds from 10^15 on to the nearest double: numbers are
// within both the bound and that double.
//
// INVALID_ARGUMENT "minimum: ..." or "maximum: ..." if a bound is not a JSON number, has more than
// 400 digits before or after the point, or leaves only numbers of more than 100 digits.
// INVALID_ARGUMENT "no integer is from 5 to 3" if the range is empty.
//
// If a bound is exclusive, numbers have at most 15 digits before and after the point together (a
// zero before it does not count), so that they differ from the bound as doubles, too. A bound of
// more digits is rounded to 15 in the direction that makes the range smaller.
absl::StatusOr<std::string> NumberRange(const std::optional<NumberBound>& min,
                                        const std::optional<NumberBound>& max, bool is_integer);

GrammarExpr AnyJsonNumber();

// Returns the numbers or integers of a flat schema (json_schema.h).
absl::StatusOr<GrammarExpr> NumberGrammar(const JsonValue& flat, bool is_integer,
                                          const std::string& path, SchemaOutput* output);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_NUMBER_GRAMMAR_H_
