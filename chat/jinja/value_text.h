// Values as text: as templates print them, as Python shows them, and as JSON.
#ifndef TANDEM_CHAT_JINJA_VALUE_TEXT_H_
#define TANDEM_CHAT_JINJA_VALUE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"
#include "tandem/json_value.h"

namespace tandem::jinja {

// The shortest decimal number that reads back the same, as Python writes it.
std::string FloatText(double value);

// Python's str() and repr(). Strings inside keep their marks.
absl::StatusOr<MarkedText> ToText(Runtime* runtime, const Value& value);
absl::StatusOr<MarkedText> ToRepr(Runtime* runtime, const Value& value);

// Python's json.dumps.
struct JsonStyle {
  std::optional<std::string> indent = std::nullopt;  // of one level
  std::string comma = ", ";
  std::string colon = ": ";
  bool sorts_keys = false;
  bool is_ascii = false;  // other characters are escaped
};
absl::StatusOr<MarkedText> ToJson(Runtime* runtime, const Value& value, const JsonStyle& style);

// JSON as a value whose strings are all somebody's words. INVALID_ARGUMENT for what is no UTF-8,
// for integers of more than 64 bits and for values inside one another more than 100 deep. `Json`:
// JsonValue, or nlohmann's json, whose keys are in the order of the alphabet.
template <typename Json>
absl::StatusOr<Value> FromJson(const Json& json);

}  // namespace tandem::jinja

#endif  // TANDEM_CHAT_JINJA_VALUE_TEXT_H_
