#ifndef TANDEM_MODEL_CONSTRAINT_NUMBER_GRAMMAR_H_
#define TANDEM_MODEL_CONSTRAINT_NUMBER_GRAMMAR_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/constraint/grammar_text.h"
#include "model/constraint/schema_output.h"
#include "model/formats/json_value.h"

namespace tandem {

GrammarExpr AnyJsonNumber();

// The numbers, or integers, of a flat schema (json_schema.h).
absl::StatusOr<GrammarExpr> NumberGrammar(const JsonValue& flat, bool is_integer,
                                          const std::string& path, SchemaOutput* output);

}  // namespace tandem

#endif  // TANDEM_MODEL_CONSTRAINT_NUMBER_GRAMMAR_H_
