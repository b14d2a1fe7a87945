#ifndef TANDEM_TEXT_CONSTRAINT_SCHEMA_GRAMMAR_H_
#define TANDEM_TEXT_CONSTRAINT_SCHEMA_GRAMMAR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"
#include "text/constraint/string_lengths.h"

namespace tandem {

struct SchemaGrammarOptions {
  // Objects have only the properties that the schema names, unless it says otherwise.
  bool is_strict = true;
  // Texts of other grammars are possible at the same position.
  bool is_one_of_several = false;
};

// Returns the grammar, in the grammar engine's notation, of JSON values in one line that are valid
// for `schema` (JSON Schema 2020-12). Bounds on lengths of strings that the grammar does not
// enforce are appended to `lengths`. The mark of such a rule is the number of its bounds, counted
// from 1.
//
// Texts of the grammar are always valid for the schema. The grammar may be narrower than the schema
// where that is simpler (docs/constraints.md has a list). INVALID_ARGUMENT names the keyword and
// its path if a part is not supported, or if no value is valid.
absl::StatusOr<std::string> SchemaGrammar(const JsonValue& schema,
                                          const SchemaGrammarOptions& options,
                                          std::vector<LengthRanges>* lengths);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_SCHEMA_GRAMMAR_H_
