// What two schemas allow together.
#ifndef TANDEM_CONSTRAINT_SCHEMA_MERGE_H_
#define TANDEM_CONSTRAINT_SCHEMA_MERGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"

namespace tandem {

// The types that the keyword `type` names.
std::vector<std::string> NamedTypes(const JsonValue& type);
// Whether values of `type` are of one of `types`: integers are numbers.
bool TypeIncludes(const std::vector<std::string>& types, const std::string& type);

// A schema of the values that keep to both: an allOf, or the one that says all.
JsonValue BothOf(const JsonValue& a, const JsonValue& b);

// The schema of properties that `flat` does not name; null if it has none.
const JsonValue* OthersOf(const JsonValue& flat);

// The flat schema (json_schema.h) of the values that keep to both; nullopt if there are none, and
// then `contradiction` says why. INVALID_ARGUMENT if they cannot be merged.
absl::StatusOr<std::optional<JsonValue>> MergedSchemas(JsonValue a, JsonValue b,
                                                       const std::string& path,
                                                       std::string* contradiction);

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_SCHEMA_MERGE_H_
