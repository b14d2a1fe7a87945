#ifndef TANDEM_CONSTRAINT_SCHEMA_GRAMMAR_H_
#define TANDEM_CONSTRAINT_SCHEMA_GRAMMAR_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "constraint/string_lengths.h"
#include "tandem/json_value.h"

namespace tandem {

struct SchemaGrammarOptions {
  // Objects have no properties but those that the schema names, unless it says otherwise.
  bool is_strict = true;
  // Other grammars may be followed at the same place.
  bool is_one_of_several = false;
};

// The grammar, in the grammar engine's notation, of JSON values in one line that keep to `schema`
// (JSON Schema 2020-12). Bounds on lengths of strings that the grammar leaves open are appended to
// `lengths`; a rule's mark is their number, from 1 on.
//
// Texts of the grammar always keep to the schema; the grammar may be narrower than the schema where
// that is easier to write (docs/constraints.md lists where). INVALID_ARGUMENT naming the keyword
// and its place if a part cannot be kept, or if no value keeps to the schema.
absl::StatusOr<std::string> SchemaGrammar(const JsonValue& schema,
                                          const SchemaGrammarOptions& options,
                                          std::vector<LengthRanges>* lengths);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_SCHEMA_GRAMMAR_H_
