#ifndef TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_
#define TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_

#include <string>

#include "absl/status/statusor.h"
#include "constraint/grammar_text.h"
#include "constraint/schema_output.h"
#include "tandem/json_value.h"

namespace tandem {

GrammarExpr AnyJsonNumber();

// The numbers, or integers, of a flat schema (json_schema.h).
absl::StatusOr<GrammarExpr> NumberGrammar(const JsonValue& flat, bool is_integer,
                                          const std::string& path, SchemaOutput* output);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_NUMBER_GRAMMAR_H_
