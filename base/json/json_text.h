// Parses untrusted JSON without exceptions.
#ifndef TANDEM_BASE_JSON_JSON_TEXT_H_
#define TANDEM_BASE_JSON_JSON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/json_value.h"

namespace tandem {

// Parses one whole JSON document. Returns INVALID_ARGUMENT if it is not JSON in UTF-8, nests deeper
// than 64 values, or repeats a key within an object. The message is one line that names `file` as
// its field, and the byte.
absl::StatusOr<SortedJson> ParseJson(absl::string_view text, absl::string_view file);
// As ParseJson, but also returns INVALID_ARGUMENT if the document is not an object.
absl::StatusOr<SortedJson> ParseJsonObject(absl::string_view text, absl::string_view file);
// As ParseJson, but keeps the members in the order of the text. Time and memory are linear in the
// length of the text.
absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, absl::string_view file);

// Returns the text member `key` of the object `text`, without building the object. Empty if it has
// none before the first error.
std::string TextMember(absl::string_view text, absl::string_view key);
// As TextMember, for a boolean member: whether it is true.
bool FlagMember(absl::string_view text, absl::string_view key);

// A 64-bit integer; negative ones as two's complement.
struct JsonInteger {
  uint64_t bits = 0;
  bool is_negative = false;
  // Returns whether the value is in [low, high].
  bool IsWithin(int64_t low, int64_t high) const;
};
// Returns the integer that `json` holds, if it does. 5.0 and 5e0 count as integers, because clients
// whose language has only one number type write them.
std::optional<JsonInteger> AsJsonInteger(const JsonValue& json);
std::optional<JsonInteger> AsJsonInteger(const SortedJson& json);
// As AsJsonInteger, if the integer is in [low, high].
template <typename Json>
std::optional<int64_t> AsIntegerWithin(const Json& json, int64_t low, int64_t high) {
  const std::optional<JsonInteger> number = AsJsonInteger(json);
  if (!number.has_value() || !number->IsWithin(low, high)) return std::nullopt;
  return static_cast<int64_t>(number->bits);
}

// Formats a value, a key or a name for an error message: one printable line of at most some 80
// bytes.
std::string Shown(const SortedJson& value);
std::string Shown(const JsonValue& value);

// Returns whether `value` turns off its key, whatever the key means: null, false, or an empty
// string, array or object.
bool SaysNothing(const SortedJson& value);

// Returns whether `value` is this string.
bool IsText(const SortedJson& value, absl::string_view text);
bool IsText(const JsonValue& value, absl::string_view text);
std::string Quoted(absl::string_view text);

// Returns INVALID_ARGUMENT, "<where>: found <found>, allowed: <allowed>".
absl::Status NotAllowed(absl::string_view where, absl::string_view found,
                        absl::string_view allowed);

}  // namespace tandem

#endif  // TANDEM_BASE_JSON_JSON_TEXT_H_
