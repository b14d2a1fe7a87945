// Expressions (ParseRegex, RegexMode::kWhole) for the JSON numbers between two bounds.
//
//   IntegerRange({{.decimal = "-5"}}, {{.decimal = "1e2", .is_exclusive = true}})
//       "-5" to "99"
#ifndef TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_
#define TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "constraint/grammar_text.h"
#include "tandem/json_value.h"

namespace tandem {

struct NumberBound {
  std::string decimal{};  // a JSON number, such as "-1.5" or "1e3"
  bool is_exclusive = false;
};

// JSON integers without fraction, exponent, leading zeros and "-0" in the range; an absent bound is
// open. Numbers on an open side have at most 15 digits, or one more than the other bound if that is
// longer. A bound of more than 100 digits before the point counts as open, unless it leaves only
// such numbers.
//
// Bounds are exact. A reader may take those from 10^15 on as the nearest double: numbers are within
// both then.
//
// INVALID_ARGUMENT "minimum: ..." or "maximum: ..." if a bound is not a JSON number, or has more
// than 400 digits before or after the point, or leaves only numbers of more than 100 digits; "no
// integer is from 5 to 3" if the range is empty.
absl::StatusOr<std::string> IntegerRange(const std::optional<NumberBound>& min,
                                         const std::optional<NumberBound>& max);

// JSON numbers without exponent and "-0" in the range; open sides and errors as above. Numbers of
// more than 15 digits before the point have no fraction, others up to 15 digits of it.
//
// Where a bound is exclusive, digits before and after the point are 15 together (a zero before it
// does not count), so that doubles tell the number from the bound; a bound of more digits is
// rounded to as many, to the side that leaves the range smaller.
absl::StatusOr<std::string> NumberRange(const std::optional<NumberBound>& min,
                                        const std::optional<NumberBound>& max);

GrammarExpr AnyJsonNumber();

// The numbers, or integers, of a flat schema (json_schema.h).
absl::StatusOr<GrammarExpr> NumberGrammar(const JsonValue& flat, bool is_integer,
                                          const std::string& path, SchemaOutput* output);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_
