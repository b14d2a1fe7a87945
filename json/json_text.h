// JSON that somebody else wrote: parsed without exceptions, and never trusted.
#ifndef TANDEM_JSON_JSON_TEXT_H_
#define TANDEM_JSON_JSON_TEXT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tandem/json_value.h"

namespace tandem {

// Parses one whole JSON document. INVALID_ARGUMENT, one line that names `file` as its field and the
// byte, if it is not JSON in UTF-8, nests deeper than 64 values or gives a key of an object twice.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view file);
// The same; INVALID_ARGUMENT also if the document is not an object.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view file);
// The same, whose members come in the text's order, in time and memory that grow as the text does.
absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, absl::string_view file);

// A value, a key or a name as an error message shows it: one line, printable, at most some 80
// bytes.
std::string Shown(const nlohmann::json& value);
std::string Shown(const JsonValue& value);

// Whether `value` turns off whatever its key may mean: null, false, or an empty text, array or
// object.
bool SaysNothing(const nlohmann::json& value);

// Whether `value` is this string.
bool IsText(const nlohmann::json& value, absl::string_view text);
bool IsText(const JsonValue& value, absl::string_view text);
std::string Quoted(absl::string_view text);

// INVALID_ARGUMENT, "<where>: found <found>, allowed: <allowed>".
absl::Status NotAllowed(absl::string_view where, absl::string_view found,
                        absl::string_view allowed);

}  // namespace tandem

#endif  // TANDEM_JSON_JSON_TEXT_H_
