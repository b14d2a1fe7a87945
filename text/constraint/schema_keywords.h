// The keywords of JSON schemas, their allowed values, and the merging of two schemas.
#ifndef TANDEM_TEXT_CONSTRAINT_SCHEMA_KEYWORDS_H_
#define TANDEM_TEXT_CONSTRAINT_SCHEMA_KEYWORDS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tandem/json_value.h"

namespace tandem {

// The type of a keyword's value.
enum class KeywordValue {
  kCount,
  kNumber,
  kText,
  kTexts,
  kSchema,
  kSchemas,
  kNamedSchemas,
  kAny,
  kRefused,  // the keyword is not supported
};
struct Keyword {
  const char* name;
  KeywordValue value;
  const char* type = "";  // type of the values that it restricts; empty: all types
};
absl::Span<const Keyword> Keywords();
const Keyword* FindKeyword(absl::string_view name);  // null if it does not restrict values

inline constexpr std::array kJsonTypes = {"null",   "boolean", "integer", "number",
                                          "string", "array",   "object"};

bool IsSchema(const JsonValue& value);
bool HasKeyword(const JsonValue& schema, const char* keyword);
// Returns the number of a keyword, or `otherwise` if the schema does not have it.
int64_t CountOr(const JsonValue& schema, const char* keyword, int64_t otherwise);

// Returns the values of `const` or `enum`; empty if the schema has neither.
JsonValue ListedValues(const JsonValue& schema);

// INVALID_ARGUMENT "schema<path>.<keyword>: is not supported<why>".
absl::Status UnsupportedKeyword(const std::string& path, absl::string_view keyword,
                                absl::string_view why = "");
// INVALID_ARGUMENT "schema<path>.<keyword>: found <found>, allowed: <allowed>".
absl::Status WrongKeyword(const std::string& path, absl::string_view keyword,
                          const JsonValue& found, absl::string_view allowed);
// Checks that the keyword is supported and has an allowed value. INVALID_ARGUMENT if not.
absl::Status CheckKeyword(const Keyword& keyword, const JsonValue& value, const std::string& path);

// Returns the types that the keyword `type` names.
std::vector<std::string> NamedTypes(const JsonValue& type);
// Returns whether values of `type` are among `types`. Integers are numbers.
bool TypeIncludes(const std::vector<std::string>& types, const std::string& type);

// Returns a schema of the values that are valid for both: an allOf, or one of the two if the other
// adds nothing.
JsonValue BothOf(const JsonValue& a, const JsonValue& b);

// Returns the schema of properties that `flat` does not name; null if it has no such schema.
const JsonValue* OthersOf(const JsonValue& flat);

// Merges two flat schemas (json_schema.h) into one of the values that are valid for both. Returns
// nullopt if there are no such values, and sets `contradiction` to the reason if it is empty.
// INVALID_ARGUMENT if the schemas cannot be merged.
absl::StatusOr<std::optional<JsonValue>> MergedSchemas(JsonValue a, JsonValue b,
                                                       const std::string& path,
                                                       std::string* contradiction);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_SCHEMA_KEYWORDS_H_
