#include "constraint/schema_output.h"

namespace tandem {

std::string JsonInOneLine(const JsonValue& value) {
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& element : value.items()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    value.is_object() ? absl::StrCat(JsonValue(element.key()).dump(), ": ") : "",
                    JsonInOneLine(element.value()));
  }
  return value.is_object() ? absl::StrCat("{", text, "}") : absl::StrCat("[", text, "]");
}

}  // namespace tandem
