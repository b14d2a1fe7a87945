#ifndef TANDEM_TEXT_CONSTRAINT_CONSTRAINT_SOURCE_H_
#define TANDEM_TEXT_CONSTRAINT_CONSTRAINT_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/output_constraint.h"
#include "text/constraint/string_lengths.h"

namespace tandem {

// A constraint in the grammar engine's notation.
struct ConstraintSource {
  bool is_tag = false;  // whether `text` is a structural tag, else it is a grammar
  std::string text{};
  std::vector<LengthRanges> lengths{};  // bounds on strings; rule marks are 1 + an index in it
};

// Converts a constraint. INVALID_ARGUMENT if a part is not supported (SchemaGrammar, ParseRegex) or
// a choice is not UTF-8.
absl::StatusOr<ConstraintSource> SourceOf(const OutputConstraint& constraint);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_CONSTRAINT_SOURCE_H_
