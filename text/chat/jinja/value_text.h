// Converts values to text: as templates print them, as Python's repr shows them, and as JSON.
#ifndef TANDEM_TEXT_CHAT_JINJA_VALUE_TEXT_H_
#define TANDEM_TEXT_CHAT_JINJA_VALUE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/json_value.h"
#include "text/chat/jinja/runtime.h"
#include "text/chat/jinja/value.h"

namespace tandem::jinja {

// Returns the shortest decimal number that reads back to the same value, as Python writes it.
std::string FloatText(double value);

// Python's str() and repr(). Inner strings keep their marks.
absl::StatusOr<MarkedText> ToText(Runtime* runtime, const Value& value);
absl::StatusOr<MarkedText> ToRepr(Runtime* runtime, const Value& value);

// The options of Python's json.dumps.
struct JsonStyle {
  std::optional<std::string> indent = std::nullopt;  // indentation of one level
  std::string comma = ", ";
  std::string colon = ": ";
  bool sorts_keys = false;
  bool is_ascii = false;  // whether other characters are escaped
};
absl::StatusOr<MarkedText> ToJson(Runtime* runtime, const Value& value, const JsonStyle& style);

// Converts JSON to a value. Its strings are marked kPlain: they are not the template's own text.
// INVALID_ARGUMENT for strings that are not UTF-8, for integers beyond signed 64 bits, and for
// values nested more than 100 deep.
absl::StatusOr<Value> FromJson(const JsonValue& json);
// Writes JSON as Python's json.dumps does. Errors are those of FromJson and ToJson.
absl::StatusOr<std::string> JsonText(const JsonValue& json);

}  // namespace tandem::jinja

#endif  // TANDEM_TEXT_CHAT_JINJA_VALUE_TEXT_H_
