#ifndef TANDEM_MODEL_CONSTRAINT_JSON_SCHEMA_H_
#define TANDEM_MODEL_CONSTRAINT_JSON_SCHEMA_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// A JSON schema as the grammar engine takes it.
//
// Refuses what the engine would leave out without a word: keywords that it does not know, and those
// that stand beside a reference or a choice of schemas. INVALID_ARGUMENT naming the keyword and its
// place. Annotations and unknown names pass.
//
// Bounds on the length of a string become a pattern, because as bounds the engine lets control
// characters into strings, which no JSON parser takes. Those beside a pattern it warns of itself.
absl::StatusOr<std::string> PreparedSchema(const std::string& text);

// A structural tag with its schemas as the grammar engine takes them. Errors: PreparedSchema's.
absl::StatusOr<std::string> PreparedTag(const std::string& text);

}  // namespace tandem

#endif  // TANDEM_MODEL_CONSTRAINT_JSON_SCHEMA_H_
