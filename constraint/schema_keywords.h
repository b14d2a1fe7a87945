// The keywords of JSON schemas and their allowed values.
// What two schemas allow together.
#ifndef TANDEM_CONSTRAINT_SCHEMA_KEYWORDS_H_
#define TANDEM_CONSTRAINT_SCHEMA_KEYWORDS_H_

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

// The form of a keyword's value.
enum class KeywordValue {
  kCount,
  kNumber,
  kText,
  kTexts,
  kSchema,
  kSchemas,
  kNamedSchemas,
  kAny,
  kRefused,  // the keyword cannot be kept
};
struct Keyword {
  const char* name;
  KeywordValue value;
  const char* type = "";  // of the values that it restricts; empty: of all
};
absl::Span<const Keyword> Keywords();
const Keyword* FindKeyword(absl::string_view name);  // null for those that restrict nothing

inline constexpr std::array kJsonTypes = {"null",   "boolean", "integer", "number",
                                          "string", "array",   "object"};

bool IsSchema(const JsonValue& value);
bool HasKeyword(const JsonValue& schema, const char* keyword);
// The keyword's number, or `otherwise`.
int64_t CountOr(const JsonValue& schema, const char* keyword, int64_t otherwise);

// The values of `const` or `enum`; empty if the schema has neither.
JsonValue ListedValues(const JsonValue& schema);

// INVALID_ARGUMENT "schema<path>.<keyword>: is not supported<why>".
absl::Status UnsupportedKeyword(const std::string& path, absl::string_view keyword,
                                absl::string_view why = "");
// INVALID_ARGUMENT "schema<path>.<keyword>: found <found>, allowed: <allowed>".
absl::Status WrongKeyword(const std::string& path, absl::string_view keyword,
                          const JsonValue& found, absl::string_view allowed);
// That the keyword can be kept, and has a value that it may have.
absl::Status CheckKeyword(const Keyword& keyword, const JsonValue& value, const std::string& path);

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

#endif  // TANDEM_CONSTRAINT_SCHEMA_KEYWORDS_H_
